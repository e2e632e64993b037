"""Calls that meet: of one id at the same time, of one tool inside of another, and
of the handler with a stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.turns.records import TurnStatus

from .chatting import Tab, chunks, make_agent, stored, text_of, turn_of
from .test_chat_server_tools import outcomes, parts

pytestmark = pytest.mark.usefixtures("chat")


async def test_a_call_that_is_made_twice_at_the_same_time_runs_once() -> None:
    ran = []

    async def slow(a: int) -> int:
        ran.append(a)
        await asyncio.sleep(0.05)
        return a

    async def on_chat_message(self: Any, turn: Any) -> str:
        one, two = await asyncio.gather(
            turn.call("slow", {"a": 1}, call_id="c1"),
            turn.call("slow", {"a": 1}, call_id="c1"),
        )
        return f"{one.output} {two.output}"

    agent = make_agent(on_chat_message, tools=[slow])
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert ran == [1]
    assert text_of(frames) == "1 1"
    assert len(outcomes(chunks(frames))) == 1


async def test_who_waits_for_a_call_that_was_cancelled_makes_it() -> None:
    ran: list[None] = []
    begun = asyncio.Event()

    async def slow() -> str:
        ran.append(None)
        if len(ran) == 1:
            begun.set()
            await asyncio.Event().wait()
        return "ok"

    async def on_chat_message(self: Any, turn: Any) -> str:
        one = asyncio.create_task(turn.call("slow", call_id="c1"))
        await begun.wait()
        two = asyncio.create_task(turn.call("slow", call_id="c1"))
        one.cancel()
        return str((await two).output)

    agent = make_agent(on_chat_message, tools=[slow])
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert text_of(await tab.done()) == "ok"
    assert len(ran) == 2


async def test_a_tool_that_makes_its_own_call_again_is_told_so() -> None:
    async def again(turn: Any) -> str:
        with pytest.raises(ValueError, match="'c1' is being made: it would wait"):
            await turn.call("again", call_id="c1")
        return "no"

    async def on_chat_message(self: Any, turn: Any) -> str:
        return str((await turn.call("again", call_id="c1")).output)

    agent = make_agent(on_chat_message, tools=[again])
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert text_of(await tab.done()) == "no"


async def test_a_tool_may_call_another_and_both_are_parts_of_the_reply() -> None:
    async def inner(a: int) -> int:
        return a + 1

    async def outer(turn: Any) -> int:
        return int((await turn.call("inner", {"a": 1}, call_id="i")).output) * 10

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        result = await turn.call("outer", call_id="o")
        yield str(result.output)

    agent = make_agent(on_chat_message, tools=[inner, outer])
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert text_of(await tab.done()) == "20"
    found = parts((await stored(agent))[1])
    assert (found["i"]["output"], found["o"]["output"]) == (2, 20)


async def test_a_stop_between_calls_of_a_tool_is_no_failure_of_the_tool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stopped = asyncio.Event()

    async def inner() -> None:
        pass

    async def outer(turn: Any) -> str:
        stopped.set()
        # Refuses to be cancelled, and goes on calling.
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await turn.cancelled.wait()
            await turn.call("inner")

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        yield {
            "type": "tool-input-available",
            "toolCallId": "o",
            "toolName": "outer",
            "input": {},
        }

    agent = make_agent(on_chat_message, tools=[inner, outer])
    async with Tab(agent) as tab:
        await tab.ask("x")
        await stopped.wait()
        await tab.cancel()
        assert (await tab.done())[-1]["outcome"] == "aborted"
    assert (await turn_of(agent)).status is TurnStatus.ABORTED
    assert "failed (reference" not in caplog.text
