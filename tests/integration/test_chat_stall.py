"""A provider that goes silent: slow is not dead, unless the agent says when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.turns.records import TurnStatus

from .chatting import Tab, make_agent, message_text, stored, text_of, turn_of

pytestmark = pytest.mark.usefixtures("chat")

T = 0.5


async def silent(self: Any, turn: Any) -> AsyncIterator[str]:
    for word in ("a", "b", "c"):
        yield word
    await asyncio.Event().wait()


async def test_a_stalled_turn_ends_as_an_error_and_keeps_what_was_said() -> None:
    agent = make_agent(silent, stall_timeout=T)
    async with Tab(agent) as tab:
        await tab.ask("x")
        begun = time.monotonic()
        frames = await tab.done()
        took = time.monotonic() - begun
    last = frames[-1]
    assert (last["error"], text_of(frames)) == (True, "abc")
    assert last["body"] == "The reply stalled: nothing came for 0.5 s."
    assert took >= T
    (_, answer) = await stored(agent)
    assert message_text(answer) == "abc"
    assert (await turn_of(agent)).status is TurnStatus.ERRORED


async def test_a_handler_that_never_says_a_word_stalls_too() -> None:
    async def on_chat_message(self: Any, turn: Any) -> str:
        await asyncio.Event().wait()
        return "never"

    agent = make_agent(on_chat_message, stall_timeout=T)
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert (await tab.done())[-1]["error"] is True


async def test_a_handler_that_says_it_lives_is_left_alone() -> None:
    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        yield "a"
        for _ in range(10):
            await turn.sleep(T / 3)
            await turn.heartbeat()
        yield "b"

    agent = make_agent(on_chat_message, stall_timeout=T)
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert text_of(frames) == "ab"
    assert "error" not in frames[-1]


async def test_sleeping_is_no_sign_of_life() -> None:
    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        yield "a"
        await turn.sleep(60)

    agent = make_agent(on_chat_message, stall_timeout=T)
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert (await tab.done())[-1]["error"] is True


async def test_it_is_off_unless_asked_for() -> None:
    agent = make_agent(silent)
    async with Tab(agent) as tab:
        await tab.ask("x")
        while text_of(tab.kept) != "abc":
            await tab.next()
        assert await tab.silent(3 * T)
        await tab.cancel()
        assert (await tab.done())[-1]["outcome"] == "aborted"
