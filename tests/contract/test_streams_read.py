"""read() and read_batches(): replay, follow, end; nothing twice, no hole."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from django_streams import (
    StreamChunk,
    StreamClosedError,
    StreamNotFoundError,
    Streams,
)

from .conftest import Follow
from .stores import StoreUnderTest
from .waiting import WITHIN, in_thread


def filled(streams: Streams, stream_id: str, count: int, *, close: bool = True) -> Any:
    """A stream of *count* numbers in blocks of several sizes."""
    writer = streams.open(stream_id)
    size = 1
    while writer.cursor < count:
        seq = writer.cursor
        writer.extend(range(seq, min(seq + size, count)))
        size = size % 7 + 1
    if close:
        writer.close()
    return writer


@pytest.mark.parametrize("method", ["read", "read_batches"])
def test_an_unknown_stream_is_told_at_the_first_step(
    streams: Streams, method: str
) -> None:
    for stream_id in ("unknown", "", "x" * 300, "nul\x00", "lone\ud800"):
        reader = getattr(streams, method)(stream_id)
        with pytest.raises(StreamNotFoundError) as caught:
            next(reader)
        assert caught.value.code == "not_found"


@pytest.mark.parametrize(
    "arguments",
    [{"start": "0"}, {"start": None}, {"start": 1.5}, {"batch_size": "9"}],
)
def test_a_position_that_is_no_number_is_a_type_error(
    streams: Streams, arguments: Any
) -> None:
    filled(streams, "s", 3)
    with pytest.raises(TypeError):
        list(streams.read_batches("s", **arguments))


def test_a_negative_batch_size_is_refused(streams: Streams) -> None:
    filled(streams, "s", 3)
    with pytest.raises(ValueError, match="batch_size"):
        list(streams.read_batches("s", batch_size=-1))


def test_a_settled_stream_is_replayed_from_every_position(streams: Streams) -> None:
    filled(streams, "s", 40)
    for start in range(-2, 43):
        first = max(start, 0)
        expected = [StreamChunk(n, n) for n in range(first, 40)]
        assert list(streams.read("s", start=start)) == expected


def test_a_reader_that_starts_beyond_the_end_skips_what_comes_before(
    streams: Streams, follow: Follow
) -> None:
    writer = filled(streams, "s", 3, close=False)
    reader = follow("s", start=5)
    writer.append("three")
    writer.extend(["four", "five", "six"])
    assert reader.wait_for(2) == ["five", "six"]
    writer.close()
    reader.finish()
    assert [c.seq for c in reader.chunks] == [5, 6]


def test_a_reader_follows_until_the_end(streams: Streams, follow: Follow) -> None:
    writer = filled(streams, "s", 5, close=False)
    reader = follow("s")
    assert reader.wait_for(5) == list(range(5))
    for number in range(5, 12):
        writer.append(number)
        assert reader.wait_for(number + 1) == list(range(number + 1))
    assert not reader.end.done()
    writer.error("an errored stream ends normally")
    assert reader.finish() == list(range(12))


def test_many_readers_each_have_their_own_position(
    streams: Streams, follow: Follow
) -> None:
    writer = streams.open("s")
    readers = []
    for number in range(60):
        if number % 10 == 0:
            readers.append(follow("s", start=number // 2))
        writer.append(number)
    writer.close()
    for index, reader in enumerate(readers):
        assert reader.finish() == list(range(index * 5, 60))


def test_a_reader_that_does_not_read_holds_nobody_up(streams: Streams) -> None:
    writer = filled(streams, "s", 2, close=False)
    lazy = iter(streams.read("s"))
    assert next(lazy) == StreamChunk(0, 0)
    for number in range(2, 300):
        writer.append(number)
    writer.close()
    assert [c.chunk for c in lazy] == list(range(1, 300))


def test_a_stopped_loop_releases_the_reader(streams: Streams) -> None:
    filled(streams, "s", 10, close=False)
    for chunk in streams.read("s"):
        if chunk.seq == 4:
            break
    filled(streams, "s", 20)
    assert [c.chunk for c in streams.read("s", start=5)] == list(range(5, 20))


def test_a_log_larger_than_any_page_comes_whole(streams: Streams) -> None:
    writer = streams.open("s")
    chunks = [f"{n}:" + "x" * (n * 37 % 5000) for n in range(800)]
    chunks[300] = "x" * 900_000
    for at in range(0, 800, 50):
        writer.extend(chunks[at : at + 50])
    writer.close()
    assert [c.chunk for c in streams.read("s")] == chunks
    assert [c.chunk for c in streams.read("s", start=299)] == chunks[299:]


@pytest.mark.parametrize("batch_size", [1, 7, 100])
def test_batches_of_a_replay_have_at_most_their_size(
    streams: Streams, batch_size: int
) -> None:
    filled(streams, "s", 250)
    batches = list(streams.read_batches("s", batch_size=batch_size))
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    assert [c.chunk for batch in batches for c in batch] == list(range(250))
    assert [c.seq for batch in batches for c in batch] == list(range(250))


def test_a_batch_has_at_most_a_hundred_chunks_by_default(streams: Streams) -> None:
    filled(streams, "s", 250)
    assert max(len(batch) for batch in streams.read_batches("s")) == 100


def test_a_following_batch_holds_everything_since_the_last(streams: Streams) -> None:
    writer = filled(streams, "s", 2, close=False)
    reader = streams.read_batches("s", batch_size=2)
    assert [c.chunk for c in next(reader)] == [0, 1]
    writer.append(2)
    assert [c.chunk for c in next(reader)] == [2]
    writer.extend(range(3, 50))
    writer.close()
    assert [c.chunk for batch in reader for c in batch] == list(range(3, 50))


def test_raw_batches_hold_the_json_text(streams: Streams) -> None:
    writer = streams.open("s")
    writer.extend([{"b": 1, "a": [None, True]}, "x"])
    writer.close()
    batches = list(streams.read_batches("s", raw=True))
    assert [c for batch in batches for c in batch] == [
        StreamChunk(0, '{"b":1,"a":[null,true]}'),
        StreamChunk(1, '"x"'),
    ]


@pytest.mark.parametrize("count", [0, 1, 250])
@pytest.mark.parametrize("settled", [False, True])
def test_up_to_date_is_told_once_after_what_was_stored(
    streams: Streams, follow: Follow, count: int, settled: bool
) -> None:
    writer = filled(streams, "s", count, close=settled)
    seen: list[int] = []
    told: list[int] = []
    done = threading.Event()

    def up_to_date() -> None:
        told.append(len(seen))
        done.set()

    def consume() -> None:
        batches = streams.read_batches("s", on_up_to_date=up_to_date)
        for batch in batches:
            seen.extend(c.chunk for c in batch)

    reading = in_thread(consume)
    assert done.wait(WITHIN)
    if not settled:
        for number in range(count, count + 5):
            writer.append(number)
        writer.close()
        count += 5
    reading.result(WITHIN)
    assert seen == list(range(count))
    assert told == [count if settled else count - 5]


def test_up_to_date_counts_from_where_the_reader_began(streams: Streams) -> None:
    filled(streams, "s", 5)
    for start in (3, 5, 9):
        told: list[str] = []
        batches = streams.read_batches(
            "s", start=start, on_up_to_date=partial(told.append, "now")
        )
        assert sum(len(batch) for batch in batches) == max(5 - start, 0)
        assert told == ["now"]


def test_what_the_up_to_date_callback_appends_is_read(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = filled(streams, "s", 3, close=False)

    def finish() -> None:
        writer.append(3)
        writer.close()

    batches = streams.read_batches("s", on_up_to_date=finish)
    assert [c.chunk for batch in batches for c in batch] == [0, 1, 2, 3]


def deleted_halfway(streams: Streams) -> Iterator[StreamChunk]:
    writer = filled(streams, "s", 3, close=False)
    reader = iter(streams.read("s"))
    assert next(reader).chunk == 0
    writer.append(3)
    writer.close()
    assert streams.delete("s") is True
    return reader


def test_a_reader_of_a_deleted_stream_does_not_take_it_for_complete(
    streams: Streams,
) -> None:
    reader = deleted_halfway(streams)
    seen = [0]
    with pytest.raises(StreamClosedError) as caught:
        for chunk in reader:
            seen.append(chunk.chunk)
    assert (caught.value.code, caught.value.stream_id) == ("deleted", "s")
    with pytest.raises(StreamNotFoundError):
        next(iter(streams.read("s")))


def test_a_reader_follows_the_stream_and_not_its_id(streams: Streams) -> None:
    reader = deleted_halfway(streams)
    filled(streams, "s", 9)
    seen: list[int] = []
    with pytest.raises(StreamClosedError) as caught:
        for chunk in reader:
            seen.append(chunk.chunk)
    assert caught.value.code == "deleted"
    assert seen == list(range(1, 1 + len(seen)))
    assert len(seen) < 3


def test_a_sync_reader_ends_when_it_is_stopped(store: StoreUnderTest) -> None:
    streams = store.streams()
    filled(streams, "s", 3, close=False)
    stop = threading.Event()
    seen: list[int] = []
    tail = threading.Event()

    def consume() -> None:
        for chunk in streams.read("s", stop=stop):
            seen.append(chunk.chunk)
            if len(seen) == 3:
                tail.set()

    reading = in_thread(consume)
    assert tail.wait(WITHIN)
    stop.set()
    reading.result(WITHIN)
    assert seen == [0, 1, 2]


def test_a_sync_reader_that_is_stopped_before_it_starts_reads_nothing(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    filled(streams, "s", 3)
    stop = threading.Event()
    stop.set()
    assert list(streams.read("s", stop=stop)) == []
    with pytest.raises(StreamNotFoundError):
        list(streams.read("unknown", stop=stop))


def test_a_sync_reader_without_news_times_out(store: StoreUnderTest) -> None:
    streams = store.streams()
    filled(streams, "s", 3, close=False)
    seen: list[int] = []
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        for chunk in streams.read("s", timeout=0.1):
            seen.append(chunk.chunk)
    assert seen == [0, 1, 2]
    assert time.monotonic() - begun >= 0.1


def test_a_settled_stream_never_times_out(store: StoreUnderTest) -> None:
    streams = store.streams()
    filled(streams, "s", 3)
    assert [c.chunk for c in streams.read("s", timeout=0)] == [0, 1, 2]
