"""Many async producers at once: what one waits for holds up no other."""

from __future__ import annotations

import asyncio
from typing import Any

from pytest_django import Settings

from django_streams import Streams

from .conftest import SHORT
from .doors import AsyncDoor, Door
from .holding import writes_held
from .stores import DatabaseUnderTest, StoreUnderTest
from .test_streams_append import stored
from .waiting import WITHIN, in_thread

HELD = [f"held {number}" for number in range(6)]


def test_more_held_rows_than_a_batch_takes_hold_up_nobody_else(
    row_locking_store: DatabaseUnderTest, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"COMMIT_ENTRIES": 4}
    streams = row_locking_store.streams()

    async def produce() -> None:
        held = [await streams.aopen(name) for name in HELD]
        free = await streams.aopen("free")
        holding = writes_held(row_locking_store, *HELD)
        await asyncio.to_thread(holding.__enter__)
        waiting = [asyncio.create_task(writer.aappend("x")) for writer in held]
        try:
            # They are ahead of what comes now.
            await asyncio.sleep(0)
            async with asyncio.timeout(WITHIN):
                for number in range(20):
                    assert await free.aappend(number) == number
            assert not any(task.done() for task in waiting)
        finally:
            await asyncio.to_thread(holding.__exit__, None, None, None)
        async with asyncio.timeout(WITHIN):
            assert await asyncio.gather(*waiting) == [0] * len(HELD)

    asyncio.run(produce())
    assert stored(streams, "free") == list(range(20))
    for name in HELD:
        assert stored(streams, name) == ["x"]


def test_appends_of_two_handles_and_the_sync_door_meet_in_one_log(
    db_store: DatabaseUnderTest,
) -> None:
    """Whose position is stale is told where it went, in the same batch."""
    streams = db_store.streams()
    names = [f"s{number}" for number in range(8)]

    async def produce(who: str) -> None:
        writers = [await streams.aopen(name) for name in names for _ in range(2)]

        async def fill(place: int) -> None:
            for number in range(10):
                seq = await writers[place].aappend([who, place % 2, number])
                assert seq == writers[place].cursor - 1

        await asyncio.gather(*map(fill, range(len(writers))))

    def append() -> None:
        writers = [streams.open(name) for name in names]
        for number in range(10):
            for writer in writers:
                writer.append(["sync", 0, number])

    producing = [in_thread(asyncio.run, produce(who)) for who in ("a", "b")]
    appending = in_thread(append)
    for future in (*producing, appending):
        future.result(2 * WITHIN)
    for name in names:
        log = stored(streams, name)
        handles = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("sync", 0)]
        assert len(log) == 10 * len(handles)
        for who, handle in handles:
            mine = [n for w, h, n in log if (w, h) == (who, handle)]
            assert mine == list(range(10))


def test_a_large_entry_and_many_small_ones_share_a_batch(
    db_store: DatabaseUnderTest, settings: Settings
) -> None:
    """What takes several blocks, what fills a batch alone, and what fits."""
    settings.DJANGO_STREAMS = SHORT | {"BLOCK_BYTES": 1000, "COMMIT_BYTES": 3000}
    streams = db_store.streams()
    chunks: dict[str, list[Any]] = {
        "several blocks": ["x" * 300] * 20,
        "alone": ["y" * 5000],
        **{f"small {number}": [number] for number in range(20)},
    }

    async def produce() -> None:
        writers = {name: await streams.aopen(name) for name in chunks}
        for first in (0, 1, 2):
            seqs = await asyncio.gather(
                *(writers[name].aextend(some) for name, some in chunks.items())
            )
            assert seqs == [first * len(some) for some in chunks.values()]

    asyncio.run(produce())
    for name, some in chunks.items():
        assert stored(streams, name) == some * 3
        for block in db_store.blocks(name):
            assert block.count == 1 or len(bytes(block.body)) <= 1000


def test_the_suite_goes_through_group_commit_by_the_async_door_alone(
    store: StoreUnderTest, streams: Streams, door: Door
) -> None:
    """Else it would not hold what is said of group commit."""
    writer = streams.open("s")
    for number in range(10):
        writer.append(number)
    writer.push(10)
    writer.close()
    assert [c.chunk for c in streams.read("s")] == list(range(11))
    if isinstance(door, AsyncDoor) and store.name != "memory":
        assert door.company is not None
        assert door.company.given >= 5
