"""PostgreSQL is away for longer than one call waits for it, whatever a turn does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

import pytest

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.codec import decode
from django_streams.exceptions import StreamUnavailableError
from django_streams.tools import tool
from django_streams.turns import door, queue, status, transcript
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnStatus
from django_streams.turns.runner import get_runner
from tests import process
from tests.integration.chatting import user_message
from tests.own_postgresql import OwnPostgreSQL
from tests.process import Child

from .fleet import WorkerProcess, fleet_env
from .own_chats import own_chats

RETRY = 0.3
"""Seconds for which one call waits for the database."""

STALL = 0.7
"""Seconds after which a silent handler is given up."""

WAITS = "waits for its database"
MANY = 200
"""Words: more than wait to be stored while the handler goes on."""

RAN: list[str] = []
"""The tools that ran."""


@tool
def note(text: str) -> str:
    """Write something down."""
    RAN.append(text)
    return text.upper()


@tool(needs_approval=True)
def risky() -> str:
    """Do what must be asked for."""
    return "done"


class Careful(AIChatConsumer):
    """Does what it is asked to while its database is away."""

    allow_anonymous = True
    tools: ClassVar[Any] = (note, risky)

    async def on_chat_message(self, turn: Any) -> AsyncIterator[Any]:
        what = turn.text
        if what != "begin":
            yield "before "
        process.say("talks")
        await asyncio.to_thread(process.hear)
        if what in ("begin", "words"):
            for at in range(MANY):
                yield f"w{at} "
        if what == "call":
            result = await turn.call("note", {"text": "x"}, call_id="c1")
            yield f"{result.output} "
        if what == "ask":
            yield {
                "type": "tool-input-available",
                "toolCallId": "c1",
                "toolName": "risky",
                "input": {},
            }


@tool
async def held() -> str:
    """Take until the database is away."""
    process.say("talks")
    await asyncio.to_thread(process.hear)
    return "held"


class Watched(Careful):
    """Is given up when it says nothing, but for what it waits for itself."""

    tools: ClassVar[Any] = (held,)
    stall_timeout = STALL

    async def on_chat_message(self, turn: Any) -> AsyncIterator[Any]:
        result = await turn.call("held", {}, call_id="c1")
        yield f"{result.output} "


async def submit(room: str, agent: str, text: str) -> None:
    ref = ConversationRef(agent, room, "a:v1")
    submission = Submission(
        request_id="q1", messages=[user_message(text, "u1")], origin_ids=["u1"]
    )
    await door.run(queue.submit, ref, submission)


class Says(logging.Handler):
    """Tells the other process of the first warning that a run waits."""

    told = False

    def emit(self, record: logging.LogRecord) -> None:
        if WAITS in record.getMessage() and not self.told:
            self.told = True
            process.say("waits")


async def ended(ref: ConversationRef) -> Any:
    """The turn, once it is over; while nobody can tell it is asked again."""
    while True:
        with suppress(StreamUnavailableError):
            turn = await door.run(status.find_turn, ref, "q1")
            if turn is not None and turn.status.over:
                return turn
        await asyncio.sleep(0.05)


async def run_turn(room: str, what: str) -> None:
    """Run a turn that does *what*; says what became of it."""
    agent = Watched if what == "held" else Careful
    agent_routes(agent)
    logging.getLogger("django_streams.turns").addHandler(Says())
    ref = ConversationRef(agent.agent_name, room, "a:v1")
    await submit(room, ref.agent, what)
    get_runner().kick(ref)
    process.say([*await outcome(ref), RAN])


async def outcome(ref: ConversationRef) -> list[Any]:
    turn = await ended(ref)
    [_, answer] = [decode(text) for text in await door.run(transcript.texts, ref)]
    return [turn.status, turn.attempt, answer["parts"]]


async def tell_outcome(room: str) -> None:
    process.say(await outcome(ConversationRef("counting", room, "a:v1")))


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgreSQL]:
    # Nobody takes the turn over while its process lives.
    with own_chats(DS_CHAT_RETRY=str(RETRY), DS_CHAT_LEASE="20") as server:
        yield server


def said(parts: list[Any]) -> str:
    return "".join(part["text"] for part in parts if part["type"] == "text")


@pytest.mark.parametrize(
    ("how", "what"),
    [
        *(("stopped", what) for what in ("begin", "words", "call", "ask", "end")),
        ("read only", "words"),
    ],
)
def test_a_turn_waits_for_its_database_and_then_goes_on(
    server: OwnPostgreSQL, how: str, what: str
) -> None:
    """Also where a failover leads to a server that is not the primary yet."""
    end: Callable[[], None] = server.stop
    begin = server.start
    if how == "read only":
        end, begin = server.demote, server.promote
    with Child(run_turn, env=server.env, room=f"{how} {what}", what=what) as runner:
        assert runner.hear() == "talks"
        end()
        try:
            runner.say("go")
            assert runner.hear() == "waits"
        finally:
            begin()
        ended, attempt, parts, ran = runner.hear()
    assert (ended, attempt) == (TurnStatus.COMPLETED, 1)
    words = "".join(f"w{at} " for at in range(MANY))
    expected = {
        "begin": words,
        "words": f"before {words}",
        "call": "before X ",
    }
    assert said(parts) == expected.get(what, "before ")
    assert ran == (["x"] if what == "call" else [])
    states = {"call": ["output-available"], "ask": ["approval-requested"]}
    assert [p["state"] for p in parts if "toolCallId" in p] == states.get(what, [])


def test_a_handler_is_not_taken_for_stuck_while_its_database_is_away(
    server: OwnPostgreSQL,
) -> None:
    with Child(run_turn, env=server.env, room="held", what="held") as runner:
        assert runner.hear() == "talks"
        server.stop()
        try:
            runner.say("go")
            assert runner.hear() == "waits"
            time.sleep(2 * STALL)
        finally:
            server.start()
        ended, attempt, parts, _ = runner.hear()
    assert (ended, attempt, said(parts)) == (TurnStatus.COMPLETED, 1, "held ")


def test_a_worker_that_is_told_to_end_does_not_wait_for_its_database(
    server: OwnPostgreSQL,
) -> None:
    """Another one goes on once it is back."""
    env = server.env | fleet_env("postgresql", DS_FLEET_RETRY=str(RETRY))
    with Child(submit, env=env, room="ends", agent="counting", text="60 0.05") as one:
        assert one.wait() == 0
    with WorkerProcess(env, "--grace", "0.1") as worker:
        worker.wait_for("running=1")
        server.stop()
        try:
            worker.wait_for(WAITS)
            assert worker.stop() == 0
        finally:
            server.start()
    with WorkerProcess(env), Child(tell_outcome, env=env, room="ends") as teller:
        ended, attempt, parts = teller.hear()
    assert (ended, attempt) == (TurnStatus.COMPLETED, 2)
    assert said(parts) == "".join(f"w{at} " for at in range(60))
