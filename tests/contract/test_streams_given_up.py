"""Calls given up at any of their awaits: nothing leaks, what follows works."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextlib import aclosing
from typing import Any

import pytest

from django_streams import Streams, StreamWriter, ids
from django_streams.feed import get_hub

from .stores import StoreUnderTest
from .waiting import WITHIN, aeventually

Call = Callable[[Streams, StreamWriter], Coroutine[Any, Any, Any]]

LATE = 30
"""Awaits that no call has."""


class Given:
    """Gives its task up at one of the awaits of a coroutine."""

    def __init__(self, at: int, *, answered: bool) -> None:
        self._at = at
        self._answered = answered
        """Only when the answer is there, and would be lost."""
        self.up = False

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, Any]) -> Generator[Any, Any, Any]:
        awaits = 0
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                waits_for = work.send(value) if error is None else work.throw(error)
            except StopIteration as end:
                return end.value
            awaits += 1
            if awaits == self._at:
                self._give_up(waits_for)
            value, error = None, None
            try:
                value = yield waits_for
            except BaseException as raised:
                error = raised

    def _give_up(self, waits_for: asyncio.Future[Any] | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.up = True
        if self._answered and waits_for is not None:
            waits_for.add_done_callback(lambda _: task.cancel())
        else:
            task.cancel()


async def aappend(streams: Streams, writer: StreamWriter) -> None:
    await writer.aappend("maybe")


async def aextend(streams: Streams, writer: StreamWriter) -> None:
    await writer.aextend(["maybe", "maybe"])


async def apush(streams: Streams, writer: StreamWriter) -> None:
    for _ in range(3):
        await writer.apush("maybe")
    await writer.aflush()


async def arenew(streams: Streams, writer: StreamWriter) -> None:
    await writer.arenew()


async def aopen(streams: Streams, writer: StreamWriter) -> None:
    await streams.aopen("another")


async def astatus(streams: Streams, writer: StreamWriter) -> None:
    await streams.astatus("s")
    await streams.alist()


async def aread(streams: Streams, writer: StreamWriter) -> None:
    """A replay and one step of the tail, which the poll or a wake ends."""
    async with aclosing(streams.aread("s")) as reader:
        async for chunk in reader:
            if chunk.seq >= 3:
                appending = asyncio.create_task(writer.aappend("wakes"))
                try:
                    await anext(reader)
                finally:
                    await appending
                return


async def asettle(streams: Streams, writer: StreamWriter) -> None:
    name = ids.new_id()
    async with await streams.aopen(name) as other:
        await other.aappend(1)
    await streams.adelete(name)


CALLS = [aappend, aextend, apush, arenew, aopen, astatus, aread, asettle]


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_given_up_at_any_await_leaves_nothing_and_the_next_one_works(
    store: StoreUnderTest, call: Call, answered: bool
) -> None:
    streams = store.streams()

    async def work() -> int:
        writer = await streams.aopen("s")
        known = [0, 1, 2, 3]
        for number in known:
            await writer.aappend(number)
        for at in range(1, LATE):
            given = Given(at, answered=answered)
            task = asyncio.ensure_future(given.run(call(streams, writer)))
            async with asyncio.timeout(WITHIN):
                await asyncio.wait({task})
            if task.cancelled():
                assert given.up
            else:
                # Too late to give it up, or it was done all the same.
                assert task.exception() is None
            seq = await writer.aappend(at)
            known.append(at)
            log = await everything(streams, seq + 1)
            assert log[-1] == at
            assert [c for c in log if c not in ("maybe", "wakes")] == known
            if not given.up:
                return at
        raise AssertionError("it never ends")

    async def checked() -> None:
        assert await work() > 1 or store.name == "memory"
        me = asyncio.current_task()
        await aeventually(lambda: asyncio.all_tasks() == {me})
        assert get_hub().feeds() == []

    asyncio.run(checked())


async def everything(streams: Streams, count: int) -> list[Any]:
    async with aclosing(streams.aread("s")) as reader:
        async with asyncio.timeout(WITHIN):
            return [(await anext(reader)).chunk for _ in range(count)]
