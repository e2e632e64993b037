"""A database that renews the lease of a turn and refuses what the turn says.

A full disk, a limit on statements, a trigger: such a turn is not one that waits. It
can be stopped, it gives up by itself, and what is kept of it is what its log took.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.codec import decode
from django_streams.models import Turn
from django_streams.turns import door, ends, patience, queue, status, transcript
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnStatus
from django_streams.turns.replay import stored_chunks, turn_streams
from django_streams.turns.runner import get_runner
from tests import process
from tests.integration.chatting import user_message
from tests.own_postgresql import OwnPostgreSQL
from tests.process import Child
from tests.settings import POSTGRESQL_NAME

from .own_chats import own_chats

RETRY = 0.2
"""Seconds for which one call waits for the database, where nobody stops the turn."""
PATIENT = 20.0
"""The same by default."""
WITHIN = 1.0
"""Seconds after which a turn that is stopped has ended, whatever its database does."""
LEASE = 0.6
REFUSED = 1.0
"""Seconds after which a run of these tests gives up."""
WORDS = 60
TOOK = 4
"""Chunks that the log takes before it refuses: the last one is the first word."""

DISK_FULL, CANCELED, TOO_COMPLEX, INVALID = "53100", "57014", "54001", "22023"


class Talks(AIChatConsumer):
    """Says its words, one after the other."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Any) -> AsyncIterator[Any]:
        for at in range(WORDS):
            yield f"w{at} "
            if turn.text == "silent":
                process.say("silent")
                await asyncio.sleep(600)
            await asyncio.sleep(0)


async def run_turn(room: str, text: str, refused_after: float) -> None:
    """Run a turn and say what became of it: status, error, the message's text and
    the log's, and after how many seconds a stop was carried out."""
    patience.REFUSED = refused_after
    agent_routes(Talks)
    ref = ConversationRef(Talks.agent_name, room, "a:v1")
    submission = Submission(
        request_id="q1", messages=[user_message(text, "u1")], origin_ids=["u1"]
    )
    await door.run(queue.submit, ref, submission)
    get_runner().kick(ref)
    while True:
        turn = await door.run(status.find_turn, ref, "q1")
        assert turn is not None
        if turn.status.over:
            break
        await asyncio.sleep(0.02)
    texts = await door.run(transcript.texts, ref)
    said = [part["text"] for part in decode(texts[-1])["parts"] if "text" in part]
    chunks = turn.stream and await stored_chunks(
        turn_streams(door.alias()), turn.stream
    )
    logged = "".join(c.get("delta", "") for c in chunks or ())
    kept = "".join(said) if len(texts) > 1 else None
    row = await Turn.objects.aget(pk=turn.pk)
    took = None
    if row.cancel_requested and row.finished_at:
        took = (row.finished_at - row.cancel_requested).total_seconds()
    process.say([turn.status, turn.error, kept, logged, took])


async def stop(room: str) -> None:
    await door.run(ends.stop, ConversationRef(Talks.agent_name, room, "a:v1"))


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgreSQL]:
    with own_chats(DS_CHAT_RETRY=str(RETRY), DS_CHAT_LEASE=str(LEASE)) as server:
        yield server


@contextmanager
def refusing(server: OwnPostgreSQL, table: str, when: str, code: str) -> Iterator[None]:
    """Every row of *table* that is inserted is refused with *code*, if *when*."""
    with server.connect(POSTGRESQL_NAME) as connection:
        connection.execute(
            "DROP SEQUENCE IF EXISTS refusals; CREATE SEQUENCE refusals; "
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN "
            # It counts on whatever becomes of the transaction.
            "PERFORM nextval('refusals'); "
            f"RAISE EXCEPTION 'no room' USING ERRCODE = '{code}'; END $$ "
            "LANGUAGE plpgsql"
        )
        connection.execute(
            f"CREATE TRIGGER refuses BEFORE INSERT ON {table} FOR EACH ROW "
            f"WHEN ({when}) EXECUTE FUNCTION refuse()"
        )
    try:
        yield
    finally:
        with server.connect(POSTGRESQL_NAME) as connection:
            connection.execute(f"DROP TRIGGER refuses ON {table}")


BLOCKS = ("django_streams_chunkblock", f"NEW.seq_from >= {TOOK}")
STREAMS = ("django_streams_stream", "true")
ANSWERS = ("django_streams_message", "NEW.role = 'assistant'")


def wait_until_refused(server: OwnPostgreSQL, times: int = 2) -> None:
    end = time.monotonic() + 10.0
    with server.connect(POSTGRESQL_NAME) as connection:
        while True:
            found = connection.execute("SELECT last_value FROM refusals").fetchone()
            if found is not None and int(str(found[0])) >= times:
                return
            assert time.monotonic() < end
            time.sleep(0.02)


def outcome(
    server: OwnPostgreSQL,
    what: tuple[str, str],
    code: str,
    *,
    refused_after: float = 600.0,
    stopped: str = "",
) -> list[Any]:
    """What became of a turn that says something; of one that is *stopped*, once its
    words are refused or while it is silent, by another process."""
    room = f"{what[0]} {code} {stopped}"
    env = server.env | {"DS_CHAT_RETRY": str(PATIENT if stopped else RETRY)}
    with (
        refusing(server, *what, code),
        Child(
            run_turn,
            env=env,
            room=room,
            text=stopped or "go",
            refused_after=refused_after,
        ) as runner,
    ):
        if stopped == "silent":
            assert runner.hear() == "silent"
        elif stopped:
            wait_until_refused(server)
        if stopped:
            with Child(stop, env=env, room=room) as stopper:
                assert stopper.wait() == 0
        found: list[Any] = runner.hear()
    return found


@pytest.mark.parametrize("stopped", ["silent", "speaking"])
@pytest.mark.parametrize("code", [DISK_FULL, CANCELED])
def test_a_turn_whose_words_are_refused_can_be_stopped(
    server: OwnPostgreSQL, code: str, stopped: str
) -> None:
    ended, _, kept, logged, took = outcome(server, BLOCKS, code, stopped=stopped)
    assert ended == TurnStatus.ABORTED
    assert kept == logged
    assert kept.startswith("w0 ")
    assert took < WITHIN


def test_a_turn_that_cannot_begin_can_be_stopped(server: OwnPostgreSQL) -> None:
    found = outcome(server, STREAMS, DISK_FULL, stopped="speaking")
    ended, _, kept, _, took = found
    assert (ended, kept) == (TurnStatus.ABORTED, None)
    assert took < WITHIN


@pytest.mark.parametrize(
    ("code", "refused_after"),
    [(DISK_FULL, REFUSED), (TOO_COMPLEX, 600.0), (INVALID, 600.0)],
)
def test_a_turn_whose_words_are_refused_for_good_ends(
    server: OwnPostgreSQL, code: str, refused_after: float
) -> None:
    """At once where the server says that it will never take them."""
    ended, error, kept, logged, _ = outcome(
        server, BLOCKS, code, refused_after=refused_after
    )
    assert ended == TurnStatus.ERRORED
    assert error
    assert "no room" not in error
    assert kept == logged
    assert kept.startswith("w0 ")


def test_a_turn_whose_message_is_refused_for_good_ends(server: OwnPostgreSQL) -> None:
    """All that it said is in its log."""
    ended, error, kept, logged, _ = outcome(
        server, ANSWERS, DISK_FULL, refused_after=REFUSED
    )
    assert (ended, error) == (TurnStatus.ERRORED, "Failed to save the response.")
    assert kept is None
    assert logged == "".join(f"w{at} " for at in range(WORDS))
