"""gc_streams merges the blocks that a writer which vanished left small."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from django_streams.gc import collect
from django_streams.models import ChunkBlock, Stream

from .conftest import SHORT
from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .waiting import WITHIN, in_thread

OLD = 601
"""Seconds; younger blocks are merged by their own writer only."""


def gc(store: DatabaseUnderTest, **options: Any) -> Any:
    # A stream without a lease is not stale yet: this is about its blocks.
    return collect(using=store.alias, **({"stale": 3600} | options))


def left_small(store: DatabaseUnderTest, stream_id: str, count: int = 20) -> None:
    """What a process that was killed leaves behind."""
    writer = store.streams().open(stream_id)
    for number in range(count):
        writer.append(number)


def test_the_small_blocks_of_a_silent_stream_become_one_and_its_last(
    db_store: DatabaseUnderTest,
) -> None:
    left_small(db_store, "s")
    db_store.elapse(OLD)
    summary = gc(db_store)
    assert summary.merged == 18
    first, last = db_store.blocks("s")
    assert (first.seq_from, first.count, first.writer) == (0, 19, None)
    assert (last.seq_from, last.count) == (19, 1)
    assert last.writer is not None, "by its token a retry finds out that it is there"
    assert stored(db_store.streams(), "s") == list(range(20))
    assert gc(db_store).merged == 0


def test_a_settled_stream_is_merged_as_a_whole(db_store: DatabaseUnderTest) -> None:
    left_small(db_store, "s")
    db_store.elapse(4000)
    assert gc(db_store).settled == 1
    assert len(db_store.blocks("s")) == 20, "settled just now"
    db_store.elapse(OLD)
    assert gc(db_store).merged == 19
    (block,) = db_store.blocks("s")
    assert block.count == 20
    assert [c.chunk for c in db_store.streams().read("s")] == list(range(20))
    assert gc(db_store).merged == 0


def test_blocks_younger_than_ten_minutes_are_left_to_their_writer(
    db_store: DatabaseUnderTest,
) -> None:
    left_small(db_store, "s")
    db_store.elapse(595)
    assert gc(db_store).merged == 0
    assert len(db_store.blocks("s")) == 20


def test_a_stream_that_still_appends_is_left_to_its_writer(
    db_store: DatabaseUnderTest,
) -> None:
    writer = db_store.streams().open("s")
    for number in range(5):
        writer.append(number)
        db_store.elapse(OLD)
    writer.append(5)
    assert gc(db_store).merged == 0
    assert len(db_store.blocks("s")) == 6


def test_the_age_is_a_setting(db_store: DatabaseUnderTest, settings: Settings) -> None:
    settings.DJANGO_STREAMS = SHORT | {"ROLLUP_AFTER": 30.0}
    left_small(db_store, "s", 3)
    db_store.elapse(25)
    assert gc(db_store).merged == 0
    db_store.elapse(10)
    assert gc(db_store).merged == 1


def test_a_writer_that_was_only_silent_goes_on_behind_what_was_merged(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    for number in range(10):
        writer.append(number)
    db_store.elapse(OLD)
    assert gc(db_store).merged == 8
    assert writer.append(10) == 10
    assert writer.close() is True
    assert [c.chunk for c in streams.read("s")] == list(range(11))


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_all_streams_get_their_turn(
    db_store: DatabaseUnderTest, batch_size: int
) -> None:
    for name in range(7):
        left_small(db_store, f"s{name}", 4)
    left_small(db_store, "single", 1)
    db_store.elapse(OLD)
    assert gc(db_store, batch_size=batch_size).merged == 7 * 2
    assert gc(db_store, batch_size=batch_size).merged == 0


def test_blocks_are_merged_up_to_their_size(
    db_store: DatabaseUnderTest, settings: Settings
) -> None:
    writer = db_store.streams().open("s")
    for _ in range(30):
        writer.append("x" * 90)
    settings.DJANGO_STREAMS = SHORT | {"BLOCK_BYTES": 1000}
    db_store.elapse(OLD)
    assert gc(db_store).merged == 26
    for block in db_store.blocks("s"):
        assert len(bytes(block.body)) <= 1000
    assert gc(db_store).merged == 0
    assert stored(db_store.streams(), "s") == ["x" * 90] * 30


def test_a_dry_run_merges_nothing(db_store: DatabaseUnderTest) -> None:
    left_small(db_store, "s")
    db_store.elapse(OLD)
    assert gc(db_store, dry_run=True).merged == 0
    assert len(db_store.blocks("s")) == 20


def test_two_at_once_merge_each_block_once_beside_producers_and_deletions(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    names = [f"s{number}" for number in range(12)]
    for name in names:
        left_small(db_store, name, 8)
    db_store.elapse(OLD)

    def produce() -> None:
        for name in names:
            writer = streams.open(name)
            for number in range(8, 12):
                assert writer.append(number) == number

    def discard() -> None:
        for name in names[::3]:
            streams.open(name).close(discard=True)

    collecting = [in_thread(gc, db_store, batch_size=2) for _ in range(2)]
    producing = in_thread(produce)
    merged = sum(future.result(2 * WITHIN).merged for future in collecting)
    producing.result(2 * WITHIN)
    # A stream that went on before its turn came is young again.
    assert merged % 6 == 0
    for name in names:
        assert stored(streams, name) == list(range(12))
    db_store.elapse(OLD)
    collecting = [in_thread(gc, db_store, batch_size=2) for _ in range(2)]
    discarding = in_thread(discard)
    for future in collecting:
        future.result(2 * WITHIN)
    discarding.result(2 * WITHIN)
    gc(db_store)
    for name in names[1::3] + names[2::3]:
        assert stored(streams, name) == list(range(12))
        assert len(db_store.blocks(name)) == 2
    left = Stream.objects.using(db_store.alias).values_list("pk", flat=True)
    assert len(left) == 8
    assert not ChunkBlock.objects.using(db_store.alias).exclude(stream__in=left)
