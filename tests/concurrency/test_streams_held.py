"""Writers that wait for a lock which somebody holds for long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import connections, transaction

from django_streams import Streams, StreamWriter
from django_streams.ids import stream_key
from django_streams.models import Stream

from .logs import clear

STREAM = "one"
WITHIN = 10.0


@pytest.fixture(params=["default", "postgresql", "mariadb"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


@contextmanager
def held(alias: str, let_go: threading.Event) -> Iterator[None]:
    """Another thread holds the stream's row, and on SQLite every row."""
    holds = threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic(using=alias):
                rows = Stream.objects.using(alias).select_for_update()
                rows.get(key=stream_key(STREAM))
                holds.set()
                let_go.wait(WITHIN)
        finally:
            connections.close_all()

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(WITHIN)
    try:
        yield
    finally:
        let_go.set()
        holder.join()


def test_a_loop_goes_on_while_appends_that_were_given_up_wait(alias: str) -> None:
    """Nothing of what its tasks have begun may be waited for on the loop.

    And what was given up is stored before the next call, or not at all.
    """
    let_go = threading.Event()
    in_time = []

    async def produce() -> None:
        writer = await Streams(using=alias).aopen(STREAM)
        with held(alias, let_go):
            for number in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await writer.aappend(number)
            last = asyncio.create_task(writer.aappend("last"))
            await asyncio.sleep(0.3)
            in_time.append(not let_go.is_set())
            let_go.set()
            await last
        assert await writer.aclose() is True

    # If the loop stands still, this lets it go on, too late.
    rescue = threading.Timer(WITHIN / 2, let_go.set)
    rescue.start()
    asyncio.run(produce())
    rescue.cancel()
    assert in_time == [True]
    log = [c.chunk for c in Streams(using=alias).read(STREAM)]
    assert log[-1] == "last"
    assert log[:-1] == sorted(set(log[:-1]))


def test_a_loop_goes_on_while_a_thread_waits_with_the_same_handle(alias: str) -> None:
    let_go = threading.Event()
    in_time = []

    def append(writer: StreamWriter) -> int:
        try:
            return writer.append("first")
        finally:
            connections.close_all()

    async def produce() -> None:
        writer = await Streams(using=alias).aopen(STREAM)
        with held(alias, let_go):
            first = asyncio.create_task(asyncio.to_thread(append, writer))
            await asyncio.sleep(0.3)
            second = asyncio.create_task(writer.aappend("second"))
            pushed = asyncio.create_task(writer.apush("third"))
            await asyncio.sleep(0.3)
            in_time.append(not let_go.is_set())
            let_go.set()
            assert await first == 0
            assert await second in (1, 2)
            await pushed
        assert await writer.aclose() is True

    rescue = threading.Timer(WITHIN / 2, let_go.set)
    rescue.start()
    asyncio.run(produce())
    rescue.cancel()
    assert in_time == [True]
    log = [c.chunk for c in Streams(using=alias).read(STREAM)]
    assert sorted(log) == ["first", "second", "third"]


def test_given_up_appends_leave_the_threads_to_others(alias: str) -> None:
    """More of them than there are threads behind the async doors."""
    let_go = threading.Event()

    async def produce() -> None:
        streams = Streams(using=alias)
        writers = [await streams.aopen(STREAM) for _ in range(4)]
        with held(alias, let_go):
            for number in range(8):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await writers[number % 4].aappend(number)
            async with asyncio.timeout(WITHIN / 2):
                status = await streams.astatus(STREAM)
            assert status is not None
            assert status.cursor == 0
            assert not let_go.is_set()

    rescue = threading.Timer(WITHIN, let_go.set)
    rescue.start()
    try:
        asyncio.run(produce())
    finally:
        rescue.cancel()
