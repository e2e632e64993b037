"""Rollup, seen from outside: few rows, the same log."""

from __future__ import annotations

import itertools
import threading
from contextlib import closing
from typing import Any

import pytest
from pytest_django import Settings

from django_streams import StreamChunk, Streams
from django_streams.store import get_store, rollup

from .conftest import SHORT
from .stores import DatabaseUnderTest
from .waiting import WITHIN, in_thread


def raw(streams: Streams, stream_id: str, start: int = 0) -> list[StreamChunk]:
    batches = streams.read_batches(stream_id, start=start, raw=True)
    return [c for batch in batches for c in batch]


def test_a_settled_stream_of_many_appends_is_few_rows(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    texts = [f"word {n} \u2028\x00é" for n in range(300)]
    for text in texts:
        writer.append(text)
    writer.close()
    blocks = db_store.blocks("s")
    assert len(blocks) <= 3
    assert sum(block.count for block in blocks) == 300
    assert [c.chunk for c in streams.read("s")] == texts
    for start in (0, 1, 149, 298, 299, 300):
        assert [c.chunk for c in streams.read("s", start=start)] == texts[start:]


def test_a_pushing_producer_leaves_few_rows(db_store: DatabaseUnderTest) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    for number in range(1000):
        writer.push(number)
    writer.close()
    assert len(db_store.blocks("s")) <= 3
    assert [c.chunk for c in streams.read("s")] == list(range(1000))


def test_blocks_are_merged_up_to_their_size(
    db_store: DatabaseUnderTest, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"BLOCK_BYTES": 1_000}
    streams = db_store.streams()
    writer = streams.open("s")
    chunks = ["x" * 90] * 55
    chunks[30] = "y" * 5_000
    for chunk in chunks:
        writer.append(chunk)
    writer.close()
    blocks = db_store.blocks("s")
    assert len(blocks) <= 14
    for block in blocks:
        assert block.count == 1 or len(bytes(block.body)) <= 1_000
    ends = [block.seq_from + block.count for block in blocks]
    assert [block.seq_from for block in blocks] == [0, *ends[:-1]]
    assert [c.chunk for c in streams.read("s")] == chunks


def test_the_text_is_not_touched(db_store: DatabaseUnderTest) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    for number in range(120):
        writer.append({"n": number, "z": 1.0, "a": "\u2029\\u0000"})
    reader = iter(streams.read_batches("s", raw=True))
    before = next(reader)
    writer.close()
    for batch in reader:
        before += batch
    assert raw(streams, "s") == before
    assert {c.chunk[:5] for c in before} == {'{"n":'}


def test_a_merge_that_was_overtaken_by_another_leaves_the_log_as_it_is(
    db_store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by one that left as many rows, which begin where they began."""
    streams = db_store.streams()
    for chunks in ((0, 1), (2, 3, 4, 5)):
        writer = streams.open("s")
        for chunk in chunks:
            writer.append(chunk)
    token = db_store.blocks("s")[-1].writer
    store, pk = get_store(db_store.alias), db_store.row("s").pk
    runs = rollup._runs

    def late(blocks: Any) -> Any:
        monkeypatch.undo()
        assert store.rollup(pk, token, 6) == 3
        return runs(blocks)

    monkeypatch.setattr(rollup, "_runs", late)
    assert store.rollup(pk, None, 3) == 0
    assert [(b.seq_from, b.count) for b in db_store.blocks("s")] == [
        (0, 1),
        (1, 1),
        (2, 4),
    ]
    for start in range(6):
        assert [c.seq for c in taken(streams, start, 6)] == list(range(start, 6))
    assert store.rollup(pk, None, 6) == 2


def taken(streams: Streams, start: int, end: int) -> list[StreamChunk]:
    """What a live stream has from *start* to *end*."""
    with closing(streams.read("s", start=start)) as reading:
        return list(itertools.islice(reading, end - start))


def test_a_reader_in_the_middle_sees_nothing_of_it(
    db_store: DatabaseUnderTest,
) -> None:
    """Rows that a reader stands in are replaced under it again and again."""
    streams = db_store.streams()
    writer = streams.open("s")
    writer.append(0)
    begun = threading.Event()
    taken: list[int] = []

    def consume() -> None:
        for batch in streams.read_batches("s", batch_size=3):
            taken.extend(c.chunk for c in batch)
            begun.set()

    readers = [in_thread(consume)]
    assert begun.wait(WITHIN)
    for number in range(1, 400):
        writer.append(number)
        if number % 100 == 0:
            readers.append(in_thread(taken_from, db_store.streams(), number // 2))
    writer.close()
    for reader in readers:
        reader.result(WITHIN)
    assert taken == list(range(400))


def taken_from(streams: Streams, start: int) -> None:
    assert [c.chunk for c in streams.read("s", start=start)] == list(range(start, 400))


def test_a_live_stream_keeps_its_last_block(db_store: DatabaseUnderTest) -> None:
    """The token in it is how a retried append finds out that it was stored."""
    streams = db_store.streams()
    writer = streams.open("s")
    for number in range(150):
        writer.append(number)
        last = db_store.blocks("s")[-1]
        assert last.writer is not None
        assert last.seq_from + last.count == number + 1
