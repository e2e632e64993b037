"""Methods of an agent that its clients call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from django_streams.chat import Call, callable
from django_streams.exceptions import PublicError

from .chatting import RESPONSE, AgentClass, Frame, Script, Tab, text_of

pytestmark = pytest.mark.usefixtures("chat")


class Held:
    """A method that waits, and tells what became of it."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def an_agent(script: Script | None = None, held: Held | None = None) -> AgentClass:
    @callable
    def add(self: Any, a: int, b: int = 1) -> int:
        return a + b

    @callable
    async def nothing(self: Any) -> None:
        await asyncio.sleep(0)

    @callable
    async def fails(self: Any) -> None:
        raise RuntimeError("the password is x")

    @callable
    def says_why(self: Any) -> None:
        raise PublicError("closed on Sundays")

    @callable
    def odd(self: Any) -> Any:
        return {1, 2}

    @callable
    async def count(self: Any, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @callable
    def slowly(self: Any, to: int) -> Iterator[int]:
        yield from range(to)
        raise PublicError("enough")

    @callable
    async def increment(self: Any, by: int, call: Call) -> str:
        value = await call.get_state() or 0
        await call.set_state(value + by)
        return call.conversation.name

    @callable
    async def hold(self: Any) -> None:
        assert held is not None
        await held.wait()

    methods = {
        one.__name__: one
        for one in (
            *(add, nothing, fails, says_why, odd),
            *(count, slowly, increment, hold),
        )
    }
    return (script or Script()).agent(**methods)


async def ask(tab: Tab, method: str, *args: Any, call_id: str = "r1") -> list[Frame]:
    """Call, and everything up to the answer's end."""
    await tab.send({"type": "rpc", "id": call_id, "method": method, "args": args})
    frames = []
    while True:
        frame = await tab.until("rpc", id=call_id)
        frames.append({k: v for k, v in frame.items() if k not in ("type", "id")})
        if frame.get("done", True):
            return frames


def failed(text: str) -> list[Frame]:
    return [{"success": False, "error": text}]


def returned(value: Any) -> list[Frame]:
    return [{"success": True, "done": True, "result": value}]


async def test_a_call_is_answered_by_what_the_method_returns() -> None:
    async with Tab(an_agent()) as tab:
        assert await ask(tab, "add", 1, 2) == returned(3)
        assert await ask(tab, "add", 1) == returned(2)
        assert await ask(tab, "nothing") == returned(None)


@pytest.mark.parametrize("name", ["nope", "__init__", "_private", "agent_name", ""])
async def test_what_is_no_method_does_not_exist(name: str) -> None:
    async with Tab(an_agent()) as tab:
        assert await ask(tab, name) == failed(f"Method {name} does not exist")


@pytest.mark.parametrize("name", ["on_chat_message", "authorize", "send_text"])
async def test_what_is_not_marked_cannot_be_called(name: str) -> None:
    async with Tab(an_agent()) as tab:
        assert await ask(tab, name) == failed(f"Method {name} is not callable")


async def test_a_failure_is_told_as_much_as_it_was_meant_to_be() -> None:
    async with Tab(an_agent()) as tab:
        assert await ask(tab, "says_why") == failed("closed on Sundays")
        ((failure),) = await ask(tab, "fails")
        assert failure["error"].startswith("Internal error (reference ")
        ((failure),) = await ask(tab, "odd")
        assert not failure["success"]
        ((failure),) = await ask(tab, "add")
        assert failure["error"] == "Method add: missing a required argument: 'a'"


async def test_a_generator_streams_its_items() -> None:
    async with Tab(an_agent()) as tab:
        *items, end = await ask(tab, "count", 3)
        assert [item["result"] for item in items] == [0, 1, 2]
        assert not any(item["done"] for item in items)
        assert [end] == returned(None)
        *items, end = await ask(tab, "slowly", 2)
        assert [item["result"] for item in items] == [0, 1]
        assert [end] == failed("enough")


async def test_a_method_may_read_and_replace_the_state() -> None:
    agent = an_agent()
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        assert await ask(one, "increment", 2) == returned("room")
        assert await ask(one, "increment", 3, call_id="r2") == returned("room")
        for tab in (one, two):
            # What it changes may be told before what it returns.
            await tab.told("cf_agent_state", state=5)


async def test_the_socket_is_not_deaf_while_a_call_runs_and_cancels_it_at_its_end() -> (
    None
):
    held, script = Held(), Script()
    agent = an_agent(script, held)
    script.say("hello")
    script.end()
    async with Tab(agent) as tab:
        await tab.send({"type": "rpc", "id": "r0", "method": "hold", "args": []})
        await held.begun.wait()
        assert await ask(tab, "add", 1, 2) == returned(3)
        await tab.ask("x")
        assert text_of(await tab.done()) == "hello"
        assert all(f["type"] in (RESPONSE, "rpc") or "id" not in f for f in tab.kept)
    assert held.cancelled.is_set()


async def test_calls_of_one_connection_are_limited() -> None:
    held = Held()
    async with Tab(an_agent(held=held)) as tab:
        for number in range(32):
            frame = {"type": "rpc", "id": f"h{number}", "method": "hold", "args": []}
            await tab.send(frame)
        refused = failed("More than 32 calls at a time")
        assert await ask(tab, "add", 1) == refused
