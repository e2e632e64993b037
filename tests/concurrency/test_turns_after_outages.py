"""PostgreSQL was away for longer than the leases of the turns that run.

When it is back, all of them have lapsed by its clock. Whoever sweeps must not be
sooner than the runners that are alive, and must still find those that are not.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from django_streams.codec import decode
from django_streams.exceptions import StreamUnavailableError
from django_streams.turns import door, queue, status, transcript
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnStatus
from tests import process
from tests.integration.chatting import user_message
from tests.own_postgresql import OwnPostgreSQL
from tests.process import Child

from .fleet import WorkerProcess, fleet_env
from .own_chats import own_chats

LEASE = 2.0
AWAY = 3.0
"""Seconds without the database."""
TURNS, WORDS, PAUSE = 20, 80, 0.05


def refs(room: str) -> list[ConversationRef]:
    return [ConversationRef("counting", f"{room} {at}", "a:v1") for at in range(TURNS)]


async def submit_all(room: str) -> None:
    for ref in refs(room):
        message = user_message(f"{WORDS} {PAUSE}", "u1")
        submission = Submission(request_id="q1", messages=[message], origin_ids=["u1"])
        await door.run(queue.submit, ref, submission)


async def ended(ref: ConversationRef) -> list[Any]:
    """The turn's end, its attempt and its text."""
    while True:
        with suppress(StreamUnavailableError):
            turn = await door.run(status.find_turn, ref, "q1")
            assert turn is not None
            if turn.status.over:
                texts = await door.run(transcript.texts, ref)
                parts = decode(texts[-1])["parts"]
                said = "".join(part.get("text", "") for part in parts)
                return [turn.status, turn.attempt, said]
        await asyncio.sleep(0.05)


async def tell_all(room: str) -> None:
    process.say([await ended(ref) for ref in refs(room)])


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgreSQL]:
    with own_chats() as server:
        yield server


@pytest.mark.parametrize("killed", [False, True])
def test_turns_are_left_to_their_runner_unless_it_is_gone(
    server: OwnPostgreSQL, killed: bool
) -> None:
    """Also if it comes after the others have looked: it had made a pause."""
    room = f"killed={killed}"
    env = server.env | fleet_env("postgresql", lease=LEASE)
    with Child(submit_all, env=env, room=room) as submitter:
        assert submitter.wait() == 0
    with WorkerProcess(env, "--concurrency", str(TURNS)) as runner:
        runner.wait_for(f"running={TURNS}")
        with WorkerProcess(env, "--concurrency", str(TURNS)) as other:
            server.stop()
            try:
                if killed:
                    runner.kill()
                else:
                    runner.signal(signal.SIGSTOP)
                time.sleep(AWAY)
            finally:
                before = len(other.log())
                server.start()
            other.wait_for("swept=0.", after=before, times=2)
            if not killed:
                runner.signal(signal.SIGCONT)
            with Child(tell_all, env=env, room=room) as teller:
                found = teller.hear()
    words = "".join(f"w{at} " for at in range(WORDS))
    attempt = 2 if killed else 1
    assert found == [[TurnStatus.COMPLETED, attempt, words]] * TURNS
