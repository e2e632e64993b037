"""aread() and aread_batches(): generators that leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from django_streams import StreamNotFoundError, Streams
from django_streams.wake.base import Waker

from .stores import StoreUnderTest
from .waiting import WITHIN, aeventually, in_thread, outside


async def collect(streams: Streams, stream_id: str, start: int = 0) -> list[Any]:
    return [c.chunk async for c in streams.aread(stream_id, start=start)]


async def test_a_hundred_readers_each_see_everything(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    await writer.aextend(range(10))
    readers = [
        asyncio.create_task(collect(streams, "s", start=number % 12))
        for number in range(100)
    ]
    for number in range(10, 40):
        await writer.aappend(number)
    await writer.aclose()
    for number, reader in enumerate(readers):
        assert await reader == list(range(number % 12, 40))


async def test_readers_of_many_streams_are_not_mixed_up(store: StoreUnderTest) -> None:
    streams = store.streams()
    writers = [await streams.aopen(f"s{n}") for n in range(12)]
    readers = [asyncio.create_task(collect(streams, f"s{n}")) for n in range(12)]
    for step in range(15):
        for number, writer in enumerate(writers):
            await writer.aappend([number, step])
    for writer in writers:
        await writer.aclose()
    for number, reader in enumerate(readers):
        assert await reader == [[number, step] for step in range(15)]


def others() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.mark.parametrize("how", ["cancel", "close", "break"])
async def test_a_reader_that_goes_leaves_no_task_behind(
    store: StoreUnderTest, how: str
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    await writer.aappend("a")
    before = others()

    async def read_one() -> None:
        async with aclosing(streams.aread("s")) as reader:
            async for _ in reader:
                if how == "break":
                    break

    if how == "close":
        reader = streams.aread("s")
        assert (await anext(reader)).chunk == "a"
        await reader.aclose()
    else:
        task = asyncio.create_task(read_one())
        if how == "cancel":
            for _ in range(20):
                await asyncio.sleep(0.005)
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() == (how == "cancel")
    await aeventually(lambda: others() <= before, within=5)
    # And the stream goes on as if nobody had been there.
    await writer.aappend("b")
    await writer.aclose()
    assert await collect(streams, "s") == ["a", "b"]


async def test_a_reader_dropped_unclosed_leaves_no_task_behind(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    await writer.aextend(["a", "b"])
    before = others()
    reader = streams.aread("s")
    assert (await anext(reader)).chunk == "a"
    del reader
    gc.collect()
    await aeventually(lambda: others() <= before, within=5)


async def test_one_that_leaves_does_not_disturb_those_who_stay(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    staying = asyncio.create_task(collect(streams, "s"))
    for number in range(20):
        leaving = asyncio.create_task(collect(streams, "s"))
        await writer.aappend(number)
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    await writer.aclose()
    assert await staying == list(range(20))


async def test_an_unknown_stream_is_told_at_the_first_step(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    reader = streams.aread("unknown")
    batches = streams.aread_batches("unknown")
    with pytest.raises(StreamNotFoundError):
        await anext(reader)
    with pytest.raises(StreamNotFoundError):
        await anext(batches)


async def test_the_up_to_date_callback_runs_on_the_loop_of_the_reader(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    await writer.aextend(["a", "b"])
    reached = asyncio.Event()
    seen: list[str] = []

    async def consume() -> None:
        batches = streams.aread_batches("s", on_up_to_date=reached.set)
        async for batch in batches:
            seen.extend(c.chunk for c in batch)

    task = asyncio.create_task(consume())
    async with asyncio.timeout(5):
        await reached.wait()
    assert seen == ["a", "b"]
    await writer.aclose()
    await task


def test_one_facade_serves_one_loop_after_another(store: StoreUnderTest) -> None:
    streams = store.streams()

    async def produce(number: int) -> list[int]:
        writer = await streams.aopen(f"s{number}")
        reading = asyncio.create_task(collect(streams, f"s{number}"))
        for i in range(5):
            await writer.aappend(i)
        await writer.aclose()
        return await reading

    for number in range(4):
        assert asyncio.run(produce(number)) == list(range(5))


async def test_a_writer_in_a_thread_wakes_a_reader_on_the_loop(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await outside(streams.open, "s")
    reading = asyncio.create_task(collect(streams, "s"))
    for number in range(10):
        await outside(writer.append, number)
    await outside(writer.close)
    assert await reading == list(range(10))


class SilentWaker(Waker):
    """Loses every wake, as a dead channel layer does."""

    def wake(self, key: str) -> None:
        pass

    def listen(self, key: str, callback: object) -> object:  # type: ignore[override]
        return lambda: None

    def close(self) -> None:
        pass


@pytest.fixture
def silent() -> Iterator[Waker]:
    waker = SilentWaker()
    yield waker
    waker.close()


async def test_a_reader_whom_nobody_wakes_polls(
    store: StoreUnderTest, silent: Waker
) -> None:
    streams = store.streams(wake=silent)
    writer = await streams.aopen("s")
    readers = [asyncio.create_task(collect(streams, "s")) for _ in range(5)]
    for number in range(6):
        await writer.aappend(number)
        await asyncio.sleep(0)
    await writer.aclose()
    async with asyncio.timeout(5):
        for reader in readers:
            assert await reader == list(range(6))


def test_a_sync_reader_whom_nobody_wakes_polls(
    store: StoreUnderTest, silent: Waker
) -> None:
    streams = store.streams(wake=silent)
    writer = streams.open("s")
    reading = in_thread(lambda: [c.chunk for c in streams.read("s")])
    for number in range(6):
        writer.append(number)
    writer.close()
    assert reading.result(WITHIN) == list(range(6))
