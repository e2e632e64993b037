"""Whatever a handler returns, as one iterator that closes what it iterates."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from django_streams.turns import source


async def collect(result: Any) -> list[Any]:
    async with aclosing(source.items(result)) as found:
        return [item async for item in found]


async def test_strings_and_chunks_are_items_themselves() -> None:
    assert await collect("ab") == ["ab"]
    assert await collect({"type": "abort"}) == [{"type": "abort"}]
    assert await collect(["a", {"type": "x"}]) == ["a", {"type": "x"}]
    assert await collect(()) == []


@pytest.mark.parametrize("result", [7, object(), 1.5, True])
async def test_what_cannot_be_a_reply_is_refused(result: Any) -> None:
    with pytest.raises(TypeError, match="on_chat_message returns"):
        await collect(result)


async def test_an_async_generator_is_closed_with_the_reply() -> None:
    closed = asyncio.Event()

    async def words() -> AsyncIterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.set()

    async with aclosing(source.items(words())) as found:
        assert await anext(found) == "a"
    assert closed.is_set()


async def test_an_async_iterable_need_not_be_a_generator() -> None:
    class Words:
        def __aiter__(self) -> Words:
            self.left = ["b", "a"]
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    assert await collect(Words()) == ["a", "b"]


async def test_a_blocking_generator_runs_in_a_thread_and_in_one_context() -> None:
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("v", default=0)
    threads: set[int] = set()
    closed: list[bool] = []

    def words() -> Iterator[str]:
        try:
            for at in range(3):
                threads.add(threading.get_ident())
                variable.set(variable.get() + 1)
                yield str(variable.get() * 10 + at)
        finally:
            closed.append(True)

    assert await collect(words()) == ["10", "21", "32"]
    assert threading.get_ident() not in threads
    assert closed == [True]


async def test_a_blocking_generator_that_is_left_is_closed() -> None:
    closed: list[bool] = []

    def words() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append(True)

    async with aclosing(source.items(words())) as found:
        await anext(found)
    assert closed == [True]


async def test_a_step_that_blocks_does_not_hold_up_its_cancellation() -> None:
    release = threading.Event()

    def words() -> Iterator[str]:
        release.wait(10)
        yield "a"

    task = asyncio.create_task(collect(words()))
    await asyncio.sleep(0.05)
    task.cancel()
    try:
        async with asyncio.timeout(2):
            with pytest.raises(asyncio.CancelledError):
                await task
    finally:
        release.set()


async def test_a_blocking_generator_that_is_left_in_a_step_is_closed_behind_it() -> (
    None
):
    began, release, closed = threading.Event(), threading.Event(), threading.Event()

    def words() -> Iterator[str]:
        try:
            began.set()
            release.wait(10)
            yield "a"
        finally:
            closed.set()

    held = words()
    task = asyncio.create_task(collect(held))
    await asyncio.to_thread(began.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not closed.is_set()
    release.set()
    assert await asyncio.to_thread(closed.wait, 10)


async def test_an_exception_of_a_blocking_generator_comes_through() -> None:
    def words() -> Iterator[str]:
        yield "a"
        raise LookupError("x")

    with pytest.raises(LookupError):
        await collect(words())


async def test_a_plain_handler_runs_in_a_thread() -> None:
    def handler(turn: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return turn

    assert await source.call(handler, "t") == "t"


async def test_an_async_generator_function_is_handed_over_unstarted() -> None:
    async def handler(turn: str) -> AsyncIterator[str]:
        yield turn

    result = await source.call(handler, "t")
    assert await collect(result) == ["t"]


async def test_a_coroutine_function_is_awaited() -> None:
    async def handler(turn: str) -> str:
        return turn

    assert await source.call(handler, "t") == "t"
