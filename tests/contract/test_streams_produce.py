"""produce(): a producer in the background, owned by the library."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from django_streams import StreamClosedError, Streams, StreamState
from django_streams.exceptions import PublicError

from .stores import StoreUnderTest
from .test_streams_settle import status_of
from .waiting import WITHIN, aeventually, eventually


async def aiter_of(*values: Any) -> AsyncIterator[Any]:
    for value in values:
        yield value


def test_a_list_is_produced_to_its_end(streams: Streams) -> None:
    status = streams.produce("s", ["a", "b", "c"], tag="t", metadata={"m": 1})
    assert (status.stream_id, status.tag) == ("s", "t")
    assert status.metadata == {"m": 1}
    assert [c.chunk for c in streams.read("s")] == ["a", "b", "c"]
    assert status_of(streams, "s").state is StreamState.COMPLETED


def test_an_async_iterator_is_produced_to_its_end(streams: Streams) -> None:
    streams.produce("s", aiter_of("a", "b", "c"))
    assert [c.chunk for c in streams.read("s")] == ["a", "b", "c"]
    assert status_of(streams, "s").state is StreamState.COMPLETED


def test_an_empty_iterable_completes_an_empty_stream(streams: Streams) -> None:
    streams.produce("s", [])
    assert list(streams.read("s")) == []
    assert status_of(streams, "s").state is StreamState.COMPLETED


def test_produce_returns_at_once(streams: Streams) -> None:
    go = threading.Event()

    def slow() -> Iterator[str]:
        yield "first"
        assert go.wait(WITHIN)
        yield "second"

    status = streams.produce("s", slow())
    assert status.state is StreamState.STREAMING
    reader = streams.read("s")
    assert next(reader).chunk == "first"
    assert status_of(streams, "s").state is StreamState.STREAMING
    go.set()
    assert [c.chunk for c in reader] == ["second"]


def failing(error: Exception) -> Iterator[str]:
    yield "partial"
    raise error


def test_a_producer_that_raises_settles_its_stream(streams: Streams) -> None:
    streams.produce("s", failing(LookupError("the password is hunter2")))
    assert [c.chunk for c in streams.read("s")] == ["partial"]
    status = status_of(streams, "s")
    assert status.state is StreamState.ERRORED
    assert status.error is not None
    assert status.error.startswith("Internal error")
    assert "hunter2" not in status.error


def test_a_producer_may_say_what_went_wrong(streams: Streams) -> None:
    streams.produce("s", failing(PublicError("The model is overloaded.")))
    list(streams.read("s"))
    assert status_of(streams, "s").error == "The model is overloaded."


def test_a_producer_of_what_is_not_json_settles_its_stream(streams: Streams) -> None:
    streams.produce("s", ["a", object(), "b"])
    assert [c.chunk for c in streams.read("s")] == ["a"]
    assert status_of(streams, "s").state is StreamState.ERRORED


def test_producing_into_a_settled_stream_is_refused_at_once(streams: Streams) -> None:
    streams.open("s").close()
    with pytest.raises(StreamClosedError):
        streams.produce("s", ["a"])


@pytest.mark.parametrize("source", [5, None])
def test_what_cannot_be_produced_is_refused_at_once(
    streams: Streams, source: Any
) -> None:
    with pytest.raises(TypeError):
        streams.produce("s", source)
    assert streams.status("s") is None


def test_a_cancelled_producer_is_stopped_and_settled(streams: Streams) -> None:
    released = threading.Event()

    def endless() -> Iterator[int]:
        number = 0
        try:
            while True:
                yield (number := number + 1)
                released.wait(0.001)
        finally:
            released.set()

    streams.produce("s", endless())
    reader = streams.read("s")
    next(reader)
    assert streams.cancel("s") is True
    for _ in reader:
        pass
    status = status_of(streams, "s")
    assert (status.state, status.error) == (StreamState.ERRORED, "cancelled")
    assert released.wait(WITHIN)


async def test_a_silent_async_producer_is_stopped_by_a_cancel(
    store: StoreUnderTest,
) -> None:
    """The iterator is closed though it never yields again."""
    streams = store.streams()
    closed = asyncio.Event()

    async def silent() -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            closed.set()

    await streams.aproduce("s", silent(), lease=0.3)
    await aeventually(lambda: settled_cursor(streams, 1), within=5)
    await streams.acancel("s")
    async with asyncio.timeout(5):
        assert [c.chunk async for c in streams.aread("s")] == ["a"]
        await closed.wait()
    status = await streams.astatus("s")
    assert status is not None
    assert (status.state, status.error) == (StreamState.ERRORED, "cancelled")


async def settled_cursor(streams: Streams, count: int) -> bool:
    status = await streams.astatus("s")
    assert status is not None
    return status.cursor >= count


def test_the_lease_of_a_silent_producer_is_renewed(
    streams: Streams, store: StoreUnderTest
) -> None:
    go = threading.Event()

    def slow() -> Iterator[str]:
        yield "a"
        assert go.wait(WITHIN)
        yield "b"

    streams.produce("s", slow(), lease=0.6)
    for _ in range(2):
        store.elapse(1.0)
        eventually(lambda: status_of(streams, "s").lease == "live", within=5)
    go.set()
    assert [c.chunk for c in streams.read("s")] == ["a", "b"]


async def test_the_producer_outlives_the_task_that_started_it(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    go = asyncio.Event()

    async def slow() -> AsyncIterator[str]:
        yield "a"
        await go.wait()
        yield "b"

    async def view() -> None:
        await streams.aproduce("s", slow())

    await asyncio.create_task(view())
    go.set()
    assert [c.chunk async for c in streams.aread("s")] == ["a", "b"]
    status = await streams.astatus("s")
    assert status is not None
    assert status.state is StreamState.COMPLETED
