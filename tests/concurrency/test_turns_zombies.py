"""A process that was asleep for longer than its lease, and wakes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.codec import decode
from django_streams.models import Message, Stream, Turn
from django_streams.turns import door, queue
from django_streams.turns.pulse import Pulse
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef
from django_streams.turns.runner import get_runner
from tests import process
from tests.integration.chatting import (
    RESPONSE,
    RESUMING,
    Tab,
    message_text,
    quiet,
    text_of,
    user_message,
)
from tests.process import Child

from .logs import stored

pytestmark = pytest.mark.needs("postgresql")

ENV = {
    "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
    "DS_CHAT_DATABASE": "postgresql",
    "DS_CHAT_LEASE": "1",
}
ROOM = "asleep"
WORDS = [f"w{at} " for at in range(20)]
HOLD = {"word": 0}
"""Where this process waits for the parent's word."""

HEARD: list[Any] = []
"""What this process's handler and hook have met."""


class Stepping(AIChatConsumer):
    allow_anonymous = True

    async def on_chat_message(self, turn: Any) -> AsyncIterator[str]:
        said = "" if turn.partial is None else message_text(turn.partial)
        try:
            for at in range(said.count(" "), len(WORDS)):
                if at == HOLD["word"]:
                    process.say(f"at {at}")
                    await asyncio.shield(asyncio.to_thread(process.hear))
                yield WORDS[at]
        finally:
            HEARD.append(["handler over", turn.attempt])

    def on_chat_response(self, result: Any) -> None:
        HEARD.append(["hook", result.status])


async def sleeper(word: int, renews: bool) -> None:
    """Submit a turn and run it; waits at *word*."""
    HOLD["word"] = word
    if not renews:
        # As a process wakes whose appends come before its renewal.
        setattr(Pulse, "_ask", _nothing)  # noqa: B010
    agent_routes(Stepping)
    ref = ConversationRef(Stepping.agent_name, ROOM, "a:v1")
    submission = Submission(
        request_id=ROOM,
        messages=[user_message("x", "u1")],
        origin_ids=["u1"],
    )
    await door.run(queue.submit, ref, submission)
    get_runner().kick(ref)
    await quiet()
    process.say(HEARD)


async def _nothing(self: Pulse, *question: Any) -> None:
    pass


async def successor(word: int) -> None:
    """Follow the room, go on with its turn when it lapses; waits at *word*."""
    HOLD["word"] = word
    async with Tab(Stepping, ROOM) as tab:
        await tab.ready()
        await tab.until(RESUMING)
        await tab.ack(ROOM)
        await tab.until(RESPONSE, id=ROOM, done=True)
        shown = text_of(tab.kept, ROOM)
    await quiet()
    process.say([shown, HEARD])


def wake(zombie: Child) -> None:
    os.kill(zombie.pid, signal.SIGCONT)
    zombie.say("go on")
    assert zombie.hear() == [["handler over", 1]], "and no hook was called"


@pytest.mark.parametrize("renews", [True, False], ids=["renews first", "appends first"])
@pytest.mark.parametrize("when", ["in the middle", "after the end"])
def test_a_process_that_slept_through_its_lease_writes_nothing_when_it_wakes(
    postgresql_db: str, when: str, renews: bool
) -> None:
    with Child(sleeper, env=ENV, word=6, renews=renews) as zombie:
        assert zombie.hear() == "at 6"
        os.kill(zombie.pid, signal.SIGSTOP)
        try:
            with Child(successor, env=ENV, word=12) as other:
                assert other.hear() == "at 12"
                if when == "in the middle":
                    wake(zombie)
                other.say("go on")
                shown, heard = other.hear()
                if when == "after the end":
                    wake(zombie)
        finally:
            os.kill(zombie.pid, signal.SIGCONT)
    assert shown == "".join(WORDS)
    assert heard == [["handler over", 2], ["hook", "completed"]]
    turn = Turn.objects.using(postgresql_db).get()
    assert (turn.status, turn.attempt, turn.epoch) == ("completed", 2, 2)
    answer = Message.objects.using(postgresql_db).get(role="assistant")
    assert message_text(decode(answer.body)) == shown
    (stream,) = Stream.objects.using(postgresql_db).values_list("stream_id", flat=True)
    log = stored(postgresql_db, stream)
    assert log is not None
    assert "".join(chunk.get("delta", "") for chunk in log.chunks) == shown
