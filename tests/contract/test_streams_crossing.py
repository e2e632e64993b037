"""Where one stream's trouble must not become another's."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import Future

import pytest
from django.db import transaction

from django_streams import Streams, StreamWriter
from django_streams.exceptions import StreamUsageError
from django_streams.feed import get_hub
from django_streams.line import Line
from tests.unit.forks import exit_code

from .holding import writes_held
from .stores import DatabaseUnderTest
from .waiting import WITHIN, aeventually, eventually, in_thread, outside

HELD = [f"held {number}" for number in range(6)]
"""More than the pool has threads."""


async def test_lapsed_streams_that_somebody_holds_keep_nobody_from_reading(
    row_locking_store: DatabaseUnderTest,
) -> None:
    streams = row_locking_store.streams()

    def prepare() -> None:
        for name in HELD:
            streams.open(name, lease=1).append(name)
        row_locking_store.elapse(10)
        with streams.open("other") as writer:
            writer.append("x")

    await outside(prepare)
    with writes_held(row_locking_store, *HELD):
        readers = [asyncio.create_task(_read(streams, name)) for name in HELD]
        await aeventually(lambda: len(get_hub().feeds()) == len(HELD))
        async with asyncio.timeout(3):
            assert await _read(streams, "other") == ["x"]
    async with asyncio.timeout(WITHIN):
        assert await asyncio.gather(*readers) == [[name] for name in HELD]


async def _read(streams: Streams, stream_id: str) -> list[object]:
    return [chunk.chunk async for chunk in streams.aread(stream_id)]


def test_readers_of_a_stream_opened_again_outlive_the_deletion_of_the_old_one(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    with streams.open("s") as old:
        old.append("old")
    opened: list[StreamWriter] = []
    readers: list[Future[list[object]]] = []

    def again() -> None:
        opened.append(db_store.streams().open("s"))
        opened[0].append("new")
        readers.append(in_thread(_all_of, db_store.streams()))
        eventually(lambda: get_hub().feeds())

    def delete() -> None:
        with transaction.atomic(using=db_store.alias):
            # Runs before what delete() does once it is committed.
            transaction.on_commit(again, using=db_store.alias)
            streams.delete("s")

    delete()
    opened[0].append("newer")
    opened[0].close()
    assert readers[0].result(WITHIN) == ["new", "newer"]


def _all_of(streams: Streams) -> list[object]:
    return [chunk.chunk for chunk in streams.read("s")]


def test_a_writer_that_a_fork_cut_in_the_middle_of_a_write_says_so() -> None:
    line = Line()
    line.join(lambda: None)
    if (pid := os.fork()) == 0:
        try:
            line.join(lambda: None)
        except StreamUsageError as error:
            os._exit(0 if "open the stream again" in str(error) else 2)
        os._exit(1)
    assert exit_code(pid) == 0


def test_a_writer_at_rest_goes_on_in_a_forked_child() -> None:
    line = Line()
    if (pid := os.fork()) == 0:
        with line.hold():
            pass
        os._exit(0)
    assert exit_code(pid) == 0


@pytest.fixture(autouse=True)
def _no_feeds_from_before() -> None:
    eventually(lambda: not get_hub().feeds())
