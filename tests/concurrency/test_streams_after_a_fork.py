"""A process that has threads, connections and readers at work forks."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest
from django.db import connections
from django.test import override_settings

from django_streams import Streams, StreamState
from django_streams.ids import stream_key
from django_streams.models import Stream
from tests import process
from tests.process import Child

from .logs import Log, clear, stored

T = TypeVar("T")

COUNT = 500
LEASE = 0.5
WITHIN = process.TIMEOUT
SETTINGS = {"CHANNEL_LAYER": None, "POLL_MAX": 0.2}
SOON = {"PGOPTIONS": "-c synchronous_commit=off"}


@pytest.fixture(params=["default", "postgresql", "mariadb"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


# --- what the children do -----------------------------------------------------


class AtWork:
    """A loop in a thread that writes a stream, and reads it when it may."""

    def __init__(self, alias: str) -> None:
        self._streams = Streams(using=alias)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._writer = self.run(self._streams.aopen("busy"))
        self._tasks: list[Future[None]] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WITHIN)

    def write(self, count: int) -> None:
        """Append *count* chunks and wait for them."""
        self.run(self._write(count))

    def go_on(self) -> None:
        """Write and read at once, till :meth:`finish`."""
        self._over = False
        self.seen: list[Any] = []
        for work in (self._write_on(), self._read()):
            task = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._tasks.append(task)

    def finish(self) -> list[Any]:
        """What was read, after COUNT more chunks at least."""
        self._over = True
        for task in self._tasks:
            task.result(WITHIN)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        return self.seen

    async def _write(self, count: int) -> None:
        for _ in range(count):
            await self._writer.aappend(self._writer.cursor)

    async def _write_on(self) -> None:
        await self._write(COUNT)
        while not self._over:
            # Slowly enough for readers to stand at the tail.
            await asyncio.sleep(0.01)
            await self._write(1)
        await self._writer.aclose()

    async def _read(self) -> None:
        async for chunk in self._streams.aread("busy"):
            self.seen.append(chunk.chunk)


def in_a_fork(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        gc.collect()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_for_renewal(alias: str, stream_id: str) -> None:
    rows = Stream.objects.using(alias).filter(key=stream_key(stream_id))
    first = rows.get().lease_expires_at
    deadline = time.monotonic() + WITHIN
    while rows.get().lease_expires_at == first:
        assert time.monotonic() < deadline, "nobody renews the lease"
        time.sleep(0.02)
    connections.close_all()


def append_in_forks(alias: str, busy: bool) -> None:
    """Forks that write through both doors, or read, while the parent goes on."""

    def by_sync_door() -> None:
        streams = Streams(using=alias)
        writer = streams.open("sync")
        for number in range(COUNT):
            assert writer.append(number) == number
        assert writer.close() is True
        assert [c.chunk for c in streams.read("sync")] == list(range(COUNT))

    def by_async_door() -> None:
        asyncio.run(produce())

    async def produce() -> None:
        streams = Streams(using=alias)
        writer = await streams.aopen("async", lease=LEASE)
        await asyncio.to_thread(wait_for_renewal, alias, "async")
        for number in range(COUNT):
            if number % 2:
                assert await writer.aappend(number) == number
            else:
                await writer.apush(number)
        assert await writer.aclose() is True
        log = [c.chunk async for c in streams.aread("async")]
        assert log == list(range(COUNT))

    # A fork drops its copies of what threads had: the driver would warn that
    # nobody closed these connections, which are the parent's to close.
    warnings.simplefilter("ignore", ResourceWarning)

    def by_reading() -> None:
        """Follow what the parent writes; nothing but the poll tells."""
        log = [c.chunk for c in Streams(using=alias).read("busy")]
        assert log == list(range(len(log)))
        assert len(log) > COUNT

    with override_settings(DJANGO_STREAMS=SETTINGS):
        # As in servers that fork, this thread has no connection. The threads of
        # the library have; in the fork they are gone, and their locks with them.
        at_work = AtWork(alias)
        at_work.write(20)
        if busy:
            at_work.go_on()
            while len(at_work.seen) < 30:
                time.sleep(0.01)
        pids = [in_a_fork(work) for work in (by_sync_door, by_async_door, by_reading)]
        if not busy:
            at_work.go_on()
        *writers, reader = pids
        process.say([ended(pid) for pid in writers])
        process.say(at_work.finish())
        process.say(ended(reader))


# --- and what comes of it -----------------------------------------------------


def test_forks_of_a_process_at_work_append_and_so_does_the_process(alias: str) -> None:
    """SQLite's own rule: no connection may be in use while a process forks."""
    busy = alias == "postgresql"
    with Child(append_in_forks, alias=alias, busy=busy, env=SOON) as child:
        assert child.hear() == [0, 0], child.stderr()
        seen = child.hear()
        assert child.hear() == 0, child.stderr()
        assert child.wait() == 0
        assert child.stderr() == ""
    assert len(seen) >= COUNT
    assert seen == list(range(len(seen)))
    assert stored(alias, "busy") == Log(StreamState.COMPLETED, seen)
    for name in ("sync", "async"):
        assert stored(alias, name) == Log(StreamState.COMPLETED, list(range(COUNT)))
