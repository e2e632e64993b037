"""push() and flush(): buffered, in order, bounded, never lost by a settlement."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from pytest_django import Settings

from django_streams import (
    StreamClosedError,
    StreamFencedError,
    Streams,
    StreamSerializationError,
)
from django_streams.exceptions import ChunkTooLargeError

from .conftest import SHORT, Follow
from .holding import writes_held
from .stores import DatabaseUnderTest, StoreUnderTest
from .test_streams_append import stored
from .waiting import aeventually, eventually


def cursor(streams: Streams, stream_id: str) -> int:
    status = streams.status(stream_id)
    assert status is not None
    return status.cursor


def test_flush_stores_what_was_pushed_in_order(streams: Streams) -> None:
    writer = streams.open("s")
    for number in range(137):
        writer.push(number)
    writer.flush()
    assert writer.cursor == 137
    assert stored(streams, "s") == list(range(137))
    writer.flush()
    assert cursor(streams, "s") == 137


def test_the_first_pushed_chunk_does_not_wait_for_others(streams: Streams) -> None:
    writer = streams.open("s")
    writer.push("first")
    eventually(lambda: cursor(streams, "s") == 1, within=5)
    writer.close()


def test_pushed_chunks_are_stored_without_a_flush(
    streams: Streams, follow: Follow
) -> None:
    writer = streams.open("s")
    reader = follow("s")
    for number in range(25):
        writer.push(number)
    assert reader.wait_for(25) == list(range(25))
    writer.close()


@pytest.mark.parametrize("settle", ["close", "error"])
def test_settling_stores_what_was_pushed(streams: Streams, settle: str) -> None:
    writer = streams.open("s")
    for number in range(33):
        writer.push(number)
    assert getattr(writer, settle)() is True
    assert [c.chunk for c in streams.read("s")] == list(range(33))


def test_leaving_the_block_stores_what_was_pushed(streams: Streams) -> None:
    with streams.open("s") as writer:
        for number in range(33):
            writer.push(number)
    assert [c.chunk for c in streams.read("s")] == list(range(33))


def test_append_comes_after_what_was_pushed_before_it(streams: Streams) -> None:
    writer = streams.open("s")
    for number in range(13):
        writer.push(number)
    assert writer.append("a") == 13
    writer.push("p")
    assert writer.extend(["b", "c"]) == 15
    assert stored(streams, "s") == [*range(13), "a", "p", "b", "c"]


def test_a_chunk_that_is_not_json_is_refused_by_push_itself(streams: Streams) -> None:
    writer = streams.open("s")
    writer.push("a")
    with pytest.raises(StreamSerializationError) as caught:
        writer.push({"b": {1, 2}})
    assert caught.value.path == "$.b"
    with pytest.raises(ChunkTooLargeError):
        writer.push("x" * 1_048_575)
    writer.push("c")
    writer.close()
    assert [c.chunk for c in streams.read("s")] == ["a", "c"]


def test_a_pushed_chunk_is_what_it_was_when_pushed(streams: Streams) -> None:
    writer = streams.open("s")
    chunk = [0]
    for number in range(20):
        chunk[0] = number
        writer.push(chunk)
    writer.flush()
    assert stored(streams, "s") == [[number] for number in range(20)]


def test_pushing_to_a_settled_stream_is_told_at_the_flush(streams: Streams) -> None:
    writer = streams.open("s")
    streams.open("s").close()
    with pytest.raises(StreamClosedError):
        for number in range(100):
            writer.push(number)
        writer.flush()
    with pytest.raises(StreamClosedError):
        writer.append("late")
    assert cursor(streams, "s") == 0


def test_settling_after_others_settled_is_no_error_of_the_pushes(
    streams: Streams,
) -> None:
    writer = streams.open("s")
    streams.open("s").close()
    with contextlib.suppress(StreamClosedError):
        for number in range(3):
            writer.push(number)
    assert writer.close() is False
    assert writer.error("late") is False


def test_pushing_after_a_takeover_is_told_at_the_flush(streams: Streams) -> None:
    writer = streams.open("s")
    writer.push("kept")
    writer.flush()
    successor = streams.open("s", takeover=True)
    with pytest.raises(StreamFencedError):
        for number in range(100):
            writer.push(number)
        writer.flush()
    assert successor.append("next") == 1
    assert stored(streams, "s") == ["kept", "next"]


def test_two_pushing_writers_keep_their_own_order(streams: Streams) -> None:
    one, two = streams.open("s"), streams.open("s")
    for number in range(60):
        one.push(["one", number])
        two.push(["two", number])
    one.flush()
    two.flush()
    log = stored(streams, "s")
    assert len(log) == 120
    for name in ("one", "two"):
        assert [n for who, n in log if who == name] == list(range(60))


async def test_apush_waits_when_the_database_does_not_keep_up(
    db_store: DatabaseUnderTest, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"PUSH_CHUNKS": 4, "RETRY_SECONDS": 20}
    streams = db_store.streams()
    writer = await streams.aopen("s")
    accepted = 0

    async def produce() -> None:
        nonlocal accepted
        for number in range(200):
            await writer.apush(number)
            accepted += 1

    with writes_held(db_store, "s"):
        producer = asyncio.create_task(produce())
        await aeventually(lambda: accepted >= 1)
        # Nothing can be written: only the write in flight and the buffer fill.
        done, _ = await asyncio.wait({producer}, timeout=0.3)
        assert not done
        assert accepted <= 2 * 4 + 1
    await producer
    await writer.aclose()
    assert [c.chunk async for c in streams.aread("s")] == list(range(200))


async def test_a_cancelled_apush_leaves_a_usable_handle(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    for number in range(30):
        task = asyncio.ensure_future(writer.apush(f"cut {number}"))
        for _ in range(number % 4):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.apush(f"kept {number}")
    await writer.aclose()
    log = [c.chunk async for c in streams.aread("s")]
    assert [x for x in log if x.startswith("kept")] == [f"kept {n}" for n in range(30)]
    assert len(set(log)) == len(log)
