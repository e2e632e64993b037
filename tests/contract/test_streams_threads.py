"""The threads behind the async doors: what waits for a lock holds up no other."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from datetime import datetime
from typing import Any

import pytest
from pytest_django import Settings

from django_streams import Streams
from django_streams.store.pool import Pool, get_pool

from .conftest import SHORT
from .holding import writes_held
from .stores import DatabaseUnderTest
from .waiting import WITHIN, aeventually, eventually, outside

HELD = [f"held {number}" for number in range(6)]
"""More than there are threads."""

Write = Callable[[Streams, str], Coroutine[Any, Any, Any]]


async def close(streams: Streams, name: str) -> None:
    await (await streams.aopen(name)).aclose()


async def open_again(streams: Streams, name: str) -> None:
    await streams.aopen(name, takeover=True)


async def cancel(streams: Streams, name: str) -> None:
    await streams.acancel(name)


async def renew(streams: Streams, name: str) -> None:
    await (await streams.aopen(name, lease=60)).arenew()


@pytest.mark.parametrize("write", [close, open_again, cancel, renew])
def test_readers_go_on_though_more_writes_than_threads_wait_for_held_rows(
    db_store: DatabaseUnderTest, write: Write
) -> None:
    streams = db_store.streams()
    for name in HELD:
        streams.open(name).append("x")
    with streams.open("log") as log:
        log.extend(range(10))

    async def work() -> None:
        holding = writes_held(db_store, *HELD)
        await outside(holding.__enter__)
        writing = [asyncio.create_task(write(streams, name)) for name in HELD]
        try:
            await asyncio.sleep(0)
            async with asyncio.timeout(WITHIN):
                for name in ("log", *HELD):
                    assert await streams.astatus(name) is not None
                seen = [c.chunk async for c in streams.aread("log")]
                assert seen == list(range(10))
                async with aclosing(streams.aread(HELD[0])) as reader:
                    assert (await anext(reader)).chunk == "x"
            assert not any(task.done() for task in writing)
        finally:
            await outside(holding.__exit__, None, None, None)
        async with asyncio.timeout(WITHIN):
            await asyncio.gather(*writing)

    asyncio.run(work())


def lease_end(store: DatabaseUnderTest) -> datetime:
    end = store.row("free").lease_expires_at
    assert end is not None
    return end


def test_a_lease_is_renewed_though_the_row_of_another_stream_is_held(
    row_locking_store: DatabaseUnderTest,
) -> None:
    """Else one view that appends and then thinks in a transaction lets all
    leases of the process lapse, and their streams are settled by others."""
    streams = row_locking_store.streams()

    async def work() -> None:
        held = [await streams.aopen(name, lease=0.6) for name in HELD]
        free = await streams.aopen("free", lease=0.6)
        holding = writes_held(row_locking_store, *HELD)
        await outside(holding.__enter__)
        try:
            renewed = [await outside(lease_end, row_locking_store)]

            async def news() -> bool:
                end = await outside(lease_end, row_locking_store)
                if end > renewed[-1]:
                    renewed.append(end)
                return len(renewed) > 3

            await aeventually(news)
        finally:
            await outside(holding.__exit__, None, None, None)
        for writer in (free, *held):
            await writer.aappend("still mine")

    asyncio.run(work())


def test_the_pool_takes_what_it_cannot_start_a_thread_for(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """The limit of threads is reached: what there is serves everybody."""
    settings.DJANGO_STREAMS = SHORT | {"READ_POOL": 3}
    pool = Pool()
    first = threading.Event()
    held = pool.submit(first.wait)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    second = pool.submit(lambda: "second")
    first.set()
    assert held.result(WITHIN) is True
    assert second.result(WITHIN) == "second"
    empty = Pool()
    with pytest.raises(RuntimeError, match="start new thread"):
        empty.submit(lambda: "never")
    monkeypatch.setattr(threading.Thread, "start", start)
    assert empty.submit(lambda: "later").result(WITHIN) == "later"
    pool.close()
    empty.close()


def test_what_waits_leaves_one_thread_and_is_all_done_in_the_end(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"READ_POOL": 3}
    pool = Pool()
    release = threading.Event()
    waiting = [pool.submit(release.wait, waits=True) for _ in range(20)]
    assert [pool.submit(lambda n=n: n).result(WITHIN) for n in range(5)] == [*range(5)]  # type: ignore[misc]
    given_up = waiting[10]
    assert given_up.cancel()
    release.set()
    done = [future.result(WITHIN) for future in waiting if future is not given_up]
    assert done == [True] * 19
    assert pool.submit(lambda: "more", waits=True).result(WITHIN) == "more"
    pool.close()
    eventually(lambda: pool._threads == 0)


def test_one_thread_serves_both_kinds(settings: Settings) -> None:
    settings.DJANGO_STREAMS = SHORT | {"READ_POOL": 1}
    pool = Pool()
    done = [pool.submit(lambda n=n: n, waits=n % 2 == 0) for n in range(10)]  # type: ignore[misc]
    assert [future.result(WITHIN) for future in done] == list(range(10))
    pool.close()


def test_the_pool_of_a_process_is_one() -> None:
    assert get_pool() is get_pool()


def test_a_job_is_never_left_to_a_thread_that_has_just_become_busy(
    settings: Settings,
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"READ_POOL": 2}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(800):
            pool = Pool()
            # One thread that is idle, and not as many as there may be.
            pool.submit(int).result(WITHIN)
            both = threading.Barrier(2)
            meeting = [pool.submit(lambda b=both: b.wait(WITHIN)) for _ in range(2)]  # type: ignore[misc]
            assert sorted(one.result(2 * WITHIN) for one in meeting) == [0, 1]
            pool.close()
    finally:
        sys.setswitchinterval(interval)
