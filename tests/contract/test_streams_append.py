"""append() and extend(): one position each, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from django_streams import (
    StreamClosedError,
    Streams,
    StreamSerializationError,
    StreamState,
)
from django_streams.exceptions import ChunkTooLargeError

from .stores import StoreUnderTest
from .waiting import WITHIN, in_thread, outside


def stored(streams: Streams, stream_id: str) -> list[Any]:
    """Everything stored so far of a stream that may still be live."""
    status = streams.status(stream_id)
    assert status is not None
    reader = streams.read(stream_id)
    seen = [next(reader) for _ in range(status.cursor)]
    reader.close()
    assert [c.seq for c in seen] == list(range(status.cursor))
    return [c.chunk for c in seen]


def test_append_returns_the_position_of_its_chunk(streams: Streams) -> None:
    writer = streams.open("s")
    assert [writer.append(x) for x in "abc"] == [0, 1, 2]
    assert writer.cursor == 3
    assert stored(streams, "s") == ["a", "b", "c"]


def test_extend_returns_the_position_of_its_first_chunk(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append("a")
    assert writer.extend(["b", "c"]) == 1
    assert writer.extend(x for x in "de") == 3
    assert writer.cursor == 5
    assert stored(streams, "s") == list("abcde")


def test_extending_by_nothing_stores_nothing(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append("a")
    assert writer.extend([]) == 1
    assert writer.cursor == 1
    assert writer.append("b") == 1


def test_extend_takes_thousands_of_chunks_in_one_write(streams: Streams) -> None:
    writer = streams.open("s")
    chunks = [{"n": n, "pad": "x" * 100} for n in range(5000)]
    assert writer.extend(chunks) == 0
    writer.close()
    assert [c.chunk for c in streams.read("s")] == chunks


def test_extend_stores_all_chunks_or_none(streams: Streams) -> None:
    writer = streams.open("s")
    with pytest.raises(StreamSerializationError):
        writer.extend(["a", "b", float("nan"), "c"])
    assert writer.cursor == 0

    def breaks() -> Iterator[str]:
        yield "a"
        raise LookupError("the source broke")

    with pytest.raises(LookupError, match="the source broke"):
        writer.extend(breaks())
    assert stored(streams, "s") == []
    assert writer.append("a") == 0


def test_a_refused_chunk_takes_no_position(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append("a")
    with pytest.raises(StreamSerializationError) as caught:
        writer.append({"x": [1, object()]})
    assert (caught.value.path, caught.value.stream_id) == ("$.x[1]", "s")
    assert caught.value.path in str(caught.value)
    assert writer.append("b") == 1
    assert stored(streams, "s") == ["a", "b"]


def test_the_size_limit_counts_the_stored_text_and_is_inclusive(
    store: StoreUnderTest,
) -> None:
    writer = store.streams(max_chunk_bytes=64).open("s")
    assert writer.append("x" * 62) == 0
    with pytest.raises(ChunkTooLargeError) as caught:
        writer.append("x" * 63)
    assert (caught.value.code, caught.value.size) == ("too_large", 65)
    assert caught.value.limit == 64
    # Ten NULs are 60 bytes as escapes, eleven are 66.
    assert writer.append("\x00" * 10) == 1
    with pytest.raises(ChunkTooLargeError):
        writer.append("\x00" * 11)
    assert writer.append(["x" * 60]) == 2
    with pytest.raises(ChunkTooLargeError):
        writer.extend(["fits", "x" * 63])
    assert writer.cursor == 3


def test_a_chunk_may_have_a_mebibyte_by_default(streams: Streams) -> None:
    writer = streams.open("s")
    largest = "x" * (1_048_576 - 2)
    assert writer.append(largest) == 0
    with pytest.raises(ChunkTooLargeError):
        writer.append(largest + "x")
    writer.append("after")
    writer.close()
    assert [c.chunk for c in streams.read("s")] == [largest, "after"]


def test_a_chunk_is_what_it_was_when_appended(streams: Streams) -> None:
    writer = streams.open("s")
    chunk = {"words": ["a"]}
    writer.append(chunk)
    chunk["words"].append("b")
    writer.extend([chunk, chunk])
    chunk["words"].clear()
    words = [c["words"] for c in stored(streams, "s")]
    assert words == [["a"], ["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("settle", ["close", "error"])
def test_nothing_is_appended_to_a_settled_stream(streams: Streams, settle: str) -> None:
    writer, other = streams.open("s"), streams.open("s")
    writer.append("a")
    getattr(writer, settle)()
    for handle in (writer, other):
        with pytest.raises(StreamClosedError) as caught:
            handle.append("b")
        assert (caught.value.code, caught.value.stream_id) == ("closed", "s")
        with pytest.raises(StreamClosedError):
            handle.extend(["b", "c"])
    assert [c.chunk for c in streams.read("s")] == ["a"]


@pytest.mark.parametrize("how", ["delete", "discard"])
def test_a_writer_of_a_deleted_stream_is_told_so(streams: Streams, how: str) -> None:
    writer, other = streams.open("s"), streams.open("s")
    writer.append("a")
    if how == "discard":
        other.close(discard=True)
    else:
        other.close()
        streams.delete("s")
    with pytest.raises(StreamClosedError) as caught:
        writer.append("b")
    assert caught.value.code == "deleted"
    assert streams.status("s") is None


def test_a_writer_of_a_deleted_stream_does_not_write_to_its_successor(
    streams: Streams,
) -> None:
    old = streams.open("s")
    old.append("old")
    streams.open("s").close(discard=True)
    new = streams.open("s")
    with pytest.raises(StreamClosedError) as caught:
        old.append("late")
    assert caught.value.code == "deleted"
    assert old.close() is False
    assert new.append("new") == 0
    assert stored(streams, "s") == ["new"]


def test_two_writers_share_one_log(streams: Streams) -> None:
    one, two = streams.open("s"), streams.open("s")
    assert [one.append("a"), two.append("b"), two.append("c")] == [0, 1, 2]
    # The first handle believed that 1 was next.
    assert [one.append("d"), two.extend(["e", "f"]), one.append("g")] == [3, 4, 6]
    assert stored(streams, "s") == list("abcdefg")


def test_racing_writers_leave_no_gap_and_lose_nothing(store: StoreUnderTest) -> None:
    streams = store.streams()
    streams.open("s")

    def produce(number: int) -> dict[int, str]:
        writer = store.streams().open("s")
        return {writer.append(f"{number}.{i}"): f"{number}.{i}" for i in range(12)}

    running = [in_thread(produce, number) for number in range(6)]
    acknowledged: dict[int, str] = {}
    for future in running:
        acknowledged |= future.result(2 * WITHIN)
    assert len(acknowledged) == 72
    log = stored(streams, "s")
    assert log == [acknowledged[seq] for seq in range(72)]


async def test_one_handle_serves_many_tasks(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = await streams.aopen("s")
    seqs = await asyncio.gather(*(writer.aappend(n) for n in range(40)))
    assert sorted(seqs) == list(range(40))
    await writer.aclose()
    log = [c.chunk async for c in streams.aread("s")]
    assert [log[seq] for seq in seqs] == list(range(40))


async def test_a_handle_whose_append_was_cancelled_goes_on(
    store: StoreUnderTest,
) -> None:
    """A cancelled append is stored or not, never half, and the next one fits."""
    streams = store.streams()
    writer = await streams.aopen("s")
    for number in range(20):
        task = asyncio.ensure_future(writer.aappend(f"cut {number}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await writer.aappend(f"kept {number}")
    await writer.aclose()
    log = [c.chunk async for c in streams.aread("s")]
    assert [x for x in log if x.startswith("kept")] == [f"kept {n}" for n in range(20)]
    assert len(set(log)) == len(log)
    for number in range(20):
        if f"cut {number}" in log:
            assert log.index(f"cut {number}") < log.index(f"kept {number}")


async def test_a_handle_works_through_both_doors(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = await outside(streams.open, "s")
    assert await writer.aappend("a") == 0
    assert await outside(writer.append, "b") == 1
    assert await writer.aextend(["c"]) == 2
    assert await outside(writer.close) is True
    assert await writer.aclose() is False
    assert [c.chunk async for c in streams.aread("s")] == ["a", "b", "c"]


def test_an_append_is_the_last_activity(
    streams: Streams, store: StoreUnderTest
) -> None:
    writer = streams.open("s")
    store.elapse(3600)
    writer.append("a")
    status = streams.status("s")
    assert status is not None
    assert status.state is StreamState.STREAMING
    assert 3590 < (status.updated_at - status.created_at).total_seconds() < 3700
