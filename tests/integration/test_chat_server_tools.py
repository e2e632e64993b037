"""Python functions that a model calls: run as part of the turn, and stored."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.chat import tool
from django_streams.exceptions import PublicError
from django_streams.messages.repair import INTERRUPTED_TEXT
from django_streams.models import Message
from django_streams.testing import ScriptedModel
from django_streams.testing.model import tool_call
from django_streams.turns.records import TurnStatus

from .chatting import (
    RESUMING,
    Script,
    Tab,
    chunks,
    make_agent,
    message_text,
    stored,
    text_of,
    turn_of,
)
from .leaving import abandoned

pytestmark = pytest.mark.usefixtures("chat")


def call(name: str = "add", call_id: str = "t1", **arguments: Any) -> dict[str, Any]:
    kind = {"type": "tool-input-available", "toolCallId": call_id, "toolName": name}
    return kind | {"input": arguments}


def outcomes(found: list[Any]) -> list[Any]:
    return [c for c in found if c["type"].startswith("tool-output")]


def parts(message: dict[str, Any]) -> dict[str, Any]:
    return {p["toolCallId"]: p for p in message["parts"] if "toolCallId" in p}


@tool
async def add(a: int, b: int = 1) -> int:
    return a + b


def blocking(a: int) -> dict[str, Any]:
    """A plain function; it may query."""
    on_loop = threading.current_thread() is threading.main_thread()
    return {"a": a, "on_loop": on_loop, "rows": Message.objects.count()}


async def test_a_yielded_call_is_run_and_its_output_follows_it() -> None:
    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield "Well, "
        yield call(a=1, b=2)
        result = turn.result("t1")
        yield f"it is {result.text}."

    agent = make_agent(on_chat_message, tools=[add])
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    kinds = [c["type"] for c in chunks(frames)]
    at = kinds.index("tool-input-available")
    assert kinds[at + 1] == "tool-output-available"
    assert text_of(frames) == "Well, it is 3."
    _, answer = await stored(agent)
    assert parts(answer)["t1"]["state"] == "output-available"
    assert parts(answer)["t1"]["output"] == 3


async def test_a_scripted_models_calls_are_run_and_others_are_left_alone() -> None:
    model = ScriptedModel(
        [
            *tool_call("blocking", {"a": 7}, call_id="mine"),
            *tool_call("elsewhere", {}, call_id="theirs"),
            call(call_id="provider", a=1) | {"providerExecuted": True},
            "Done.",
        ]
    )
    agent = make_agent(lambda self, turn: model(turn), tools=[blocking, add])
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    (outcome,) = outcomes(chunks(frames))
    assert outcome["toolCallId"] == "mine"
    assert outcome["output"]["a"] == 7
    assert outcome["output"]["on_loop"] is False
    assert text_of(frames) == "Done."


async def test_a_handler_that_calls_gets_the_result_before_it_says_anything() -> None:
    async def on_chat_message(self: Any, turn: Any) -> str:
        one, two = await asyncio.gather(
            turn.call("add", {"a": 1}, call_id="c1"), turn.call("add", {"a": 2})
        )
        again = await turn.call("add", {"a": 1}, call_id="c1")
        assert again.output == one.output
        return f"{one.output} {two.output} {one.failed}"

    agent = make_agent(on_chat_message, tools=[add])
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert text_of(frames) == "2 3 False"
    assert sorted(c["output"] for c in outcomes(chunks(frames))) == [2, 3]


async def test_the_turn_knows_its_tools_and_a_tool_its_turn() -> None:
    def who(turn: Any) -> str:
        """Who asks."""
        return f"{turn.text} of {turn.request_id}"

    async def on_chat_message(self: Any, turn: Any) -> str:
        (told,) = turn.tools.to_openai()
        assert told["function"]["parameters"]["properties"] == {}
        assert (told["type"], told["function"]["name"]) == ("function", "who")
        with pytest.raises(ValueError, match="no tool named 'whom'; it has who"):
            await turn.call("whom")
        return str((await turn.call("who")).output)

    agent = make_agent(on_chat_message, tools=[who])
    async with Tab(agent) as tab:
        await tab.ask("hello")
        assert text_of(await tab.done()) == "hello of q1"


def refuses() -> None:
    raise PublicError("The shop is closed.")


def fails() -> None:
    raise RuntimeError("the password is 12345")


def returns_nan() -> float:
    return float("nan")


def returns_an_object() -> object:
    return object()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("refuses", "The shop is closed."),
        ("fails", "Internal error (reference "),
        ("returns_nan", "Internal error (reference "),
        ("returns_an_object", "Internal error (reference "),
        ("add", "Invalid arguments for add: $.a is missing: it must be an integer."),
    ],
)
async def test_a_tool_that_fails_is_a_result_and_the_reply_goes_on(
    name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield call(name)
        assert turn.result("t1").failed
        yield "Sorry."

    tools = [refuses, fails, returns_nan, returns_an_object, add]
    agent = make_agent(on_chat_message, tools=tools)
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    (outcome,) = outcomes(chunks(frames))
    assert outcome["type"] == "tool-output-error"
    assert outcome["errorText"].startswith(text)
    assert "12345" not in str(frames)
    assert ("12345" in caplog.text) is (name == "fails")
    assert text_of(frames) == "Sorry."
    assert (await turn_of(agent)).status is TurnStatus.COMPLETED


async def test_a_tool_is_cancelled_with_its_turn() -> None:
    running, cancelled = asyncio.Event(), asyncio.Event()

    async def forever() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield call("forever")
        yield "never"

    agent = make_agent(on_chat_message, tools=[forever])
    async with Tab(agent) as tab:
        await tab.ask("x")
        await running.wait()
        await tab.cancel()
        assert (await tab.done())[-1]["outcome"] == "aborted"
        assert cancelled.is_set()
    assert (await turn_of(agent)).status is TurnStatus.ABORTED


async def test_a_plain_tool_holds_up_neither_the_loop_nor_a_stop() -> None:
    release = threading.Event()
    begun = threading.Event()

    def slow() -> None:
        begun.set()
        release.wait(10)

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield call("slow")

    agent = make_agent(on_chat_message, tools=[slow])
    try:
        async with Tab(agent) as tab:
            await tab.ask("x")
            while not begun.is_set():
                await asyncio.sleep(0.01)
            await tab.cancel()
            assert (await tab.done())[-1]["outcome"] == "aborted"
    finally:
        release.set()


async def test_a_call_is_shown_while_its_tool_runs() -> None:
    release = asyncio.Event()

    async def slow() -> str:
        await release.wait()
        return "at last"

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield call("slow")

    agent = make_agent(on_chat_message, tools=[slow])
    async with Tab(agent) as tab:
        await tab.ask("x")
        while not any("tool-input-available" in str(f) for f in tab.kept):
            await tab.next()
        release.set()
        (outcome,) = outcomes(chunks(await tab.done()))
    assert outcome["output"] == "at last"


async def test_the_time_of_a_tool_is_no_silence_of_the_handler() -> None:
    async def slow() -> None:
        await asyncio.sleep(0.9)

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        # Two at once: the end of one is not the end of both.
        await asyncio.gather(turn.call("slow"), turn.call("add", {"a": 1}))
        yield "a"
        await asyncio.Event().wait()

    agent = make_agent(on_chat_message, tools=[slow, add], stall_timeout=0.3)
    async with Tab(agent) as tab:
        begun = time.monotonic()
        await tab.ask("x")
        frames = await tab.done()
    assert text_of(frames) == "a"
    assert frames[-1]["error"] is True
    assert time.monotonic() - begun >= 1.2


async def leave_calls(agent: Any, *said: dict[str, Any]) -> None:
    """A turn whose process was killed after it had said that."""
    end = {"type": "text-end", "id": "q1"}
    await abandoned(agent, "Let me see. ", then=[end, *said])


async def test_an_attempt_that_goes_on_runs_no_tool_again_whose_output_is_stored() -> (
    None
):
    ran = []

    async def once(a: int) -> int:
        ran.append(a)
        return a

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield call("once", "t1", a=1)
        yield f"{turn.result('t1').output} "
        yield call("once", "t2", a=2)
        yield f"{turn.result('t2').output}"

    agent = make_agent(on_chat_message, tools=[once])
    output = {"type": "tool-output-available", "toolCallId": "t1", "output": 100}
    await leave_calls(agent, call("once", "t1", a=1), output, call("once", "t2", a=2))
    async with Tab(agent) as tab:
        await tab.until(RESUMING)
        await tab.ack()
        await tab.done()
    assert ran == [2]
    _, answer = await stored(agent)
    assert message_text(answer) == "Let me see. 100 2"
    assert [part["output"] for part in parts(answer).values()] == [100, 2]


async def test_a_call_that_was_cut_short_and_is_not_made_again_ends() -> None:
    script = Script()
    agent = script.agent(tools=[add])
    await leave_calls(agent, call(call_id="t1", a=1))
    script.say("Never mind.")
    script.end()
    async with Tab(agent) as tab:
        await tab.until(RESUMING)
        await tab.ack()
        await tab.done()
    _, answer = await stored(agent)
    assert parts(answer)["t1"]["state"] == "output-error"
    assert parts(answer)["t1"]["errorText"] == INTERRUPTED_TEXT


@pytest.mark.parametrize("approved", [True, False])
async def test_a_tool_that_needs_it_runs_when_somebody_has_allowed_it(
    approved: bool,
) -> None:
    paid = []

    @tool(needs_approval=lambda amount: amount > 100)
    def pay(amount: int, turn: Any) -> str:
        paid.append((amount, turn.continuation))
        return "paid"

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        if turn.continuation:
            result = turn.result("t1")
            assert parts(turn.messages[-1])["t1"]["state"].startswith("output-")
            yield "Done." if not result.failed else "Then not."
            return
        assert (await turn.call("pay", {"amount": 5})).output == "paid"
        assert await turn.call("pay", {"amount": 500}, call_id="t1") is None
        yield "May I? "

    agent = make_agent(on_chat_message, tools=[pay])
    async with Tab(agent) as tab:
        await tab.ask("x")
        kinds = [c["type"] for c in chunks(await tab.done())]
        assert kinds.count("tool-approval-request") == 1
        assert paid == [(5, False)]
        answer = {"type": "cf_agent_tool_approval", "toolCallId": "t1"}
        await tab.send(answer | {"approved": approved, "autoContinue": True})
        request_id = (await tab.until(RESUMING))["id"]
        await tab.ack(request_id)
        await tab.done(request_id)
    assert paid == [(5, False), (500, True)][: 1 + approved]
    _, reply = await stored(agent)
    state = "output-available" if approved else "output-denied"
    assert parts(reply)["t1"]["state"] == state
    assert message_text(reply) == "May I? " + ("Done." if approved else "Then not.")
