"""SQLite under many processes: nobody sees a lock, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

from django_streams import Streams, StreamState
from django_streams.exceptions import StreamUnavailableError
from django_streams.gc import collect

from .brood import Brood, Job, Ready
from .logs import check_whole, clear, stored

PROCESSES = 4
STREAMS = 5
"""Streams of each process."""

READERS = 10
RATE = 100
"""Chunks a second that each stream is offered; the machine may be slower."""

SECONDS = 6.0
LOCAL = {"CHANNEL_LAYER": None}

PATIENCE = 0.5
"""``RETRY_SECONDS`` where the database is not set up for this."""

HOGGED = 6.0
"""Seconds; SQLite gives up after Django's five."""


@pytest.fixture(scope="module")
def brood() -> Iterator[Brood]:
    with Brood() as brood:
        yield brood


def stream_id(process: int, number: int) -> str:
    return f"stream {process}.{number}"


# --- what the children do -----------------------------------------------------


async def produce(ready: Ready, process: int, alias: str = "default") -> list[int]:
    """How many chunks each of the streams took, at most RATE a second."""
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        writers = [
            await streams.aopen(stream_id(process, number), lease=30)
            for number in range(STREAMS)
        ]
        ready()
        until = time.monotonic() + SECONDS

        async def fill(place: int) -> int:
            count = 0
            while time.monotonic() < until:
                if place % 2:
                    assert await writers[place].aappend(count) == count
                else:
                    await writers[place].apush(count)
                count += 1
                await asyncio.sleep(1 / RATE)
            await writers[place].aflush()
            return count

        return await asyncio.gather(*map(fill, range(STREAMS)))


async def follow(ready: Ready) -> list[list[int]]:
    """Half of the readers, each of another stream, till every log is settled."""
    with override_settings(DJANGO_STREAMS=LOCAL):
        ready(wait=False)

        async def read(number: int) -> list[int]:
            streams = Streams()
            return [c.chunk async for c in streams.aread(stream_id(number, 0))]

        return await asyncio.gather(*(read(n % PROCESSES) for n in range(READERS // 2)))


def sweep(ready: Ready) -> int:
    """Make old streams and delete them, all the time; how many were deleted."""
    deleted = 0
    with override_settings(DJANGO_STREAMS=LOCAL):
        ready()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            for number in range(10):
                writer = Streams().open(f"old {number}")
                writer.extend(range(20))
                writer.close()
            while Streams().list(state="completed"):
                deleted += collect(completed=0.0).deleted
    return deleted


def settle(ready: Ready) -> list[Any]:
    """Close every stream and say what is in it."""
    logs = []
    with override_settings(DJANGO_STREAMS=LOCAL):
        ready()
        for process in range(PROCESSES):
            for number in range(STREAMS):
                name = stream_id(process, number)
                assert Streams().open(name).close() is True
                log = stored("default", name)
                assert log is not None
                assert log.state is StreamState.COMPLETED
                logs.append(log.chunks)
    return logs


def produce_by_default(
    ready: Ready, process: int, file: str, count: int
) -> dict[str, Any]:
    """Append on a database as Django sets it up: no WAL, deferred, 5 s."""
    _point_at(file)
    acknowledged, refused = [], []
    with override_settings(
        DJANGO_STREAMS={**LOCAL, "RETRY_SECONDS": PATIENCE, "POLL_MAX": 0.1}
    ):
        writers = [Streams().open(stream_id(process, n)) for n in range(STREAMS)]
        shared = Streams().open("shared")
        ready()
        for number in range(count):
            for writer in (writers[number % STREAMS], shared):
                try:
                    writer.append([str(process), number])
                    acknowledged.append([writer.stream_id, number])
                except StreamUnavailableError:
                    refused.append([writer.stream_id, number])
    return {"acknowledged": acknowledged, "refused": refused}


def hog(ready: Ready, file: str) -> None:
    """Somebody else's transaction, longer than anybody waits."""
    _point_at(file)
    User.objects.count()
    ready()
    with transaction.atomic():
        User.objects.create(username="hog")
        time.sleep(HOGGED)


def follow_by_default(ready: Ready, file: str) -> list[Any]:
    _point_at(file)
    with override_settings(DJANGO_STREAMS={**LOCAL, "POLL_MAX": 0.1}):
        ready(wait=False)
        return [chunk.chunk for chunk in Streams().read("shared")]


def prepare_by_default(ready: Ready, file: str) -> str:
    ready()
    _point_at(file)
    call_command("migrate", verbosity=0)
    Streams().open("shared")
    with connections["default"].cursor() as cursor:
        cursor.execute("PRAGMA journal_mode")
        return str(cursor.fetchone()[0])


def look_by_default(ready: Ready, file: str) -> dict[str, Any]:
    ready()
    _point_at(file)
    logs = {}
    for status in Streams().list():
        log = stored("default", status.stream_id)
        assert log is not None
        logs[status.stream_id] = log.chunks
    return logs


def close_by_default(ready: Ready, file: str) -> bool:
    ready()
    _point_at(file)
    return Streams().open("shared").close()


def _point_at(file: str) -> None:
    connections.settings["default"].update(NAME=file, OPTIONS={})
    connections["default"].close()
    del connections["default"]


# --- and what comes of it -----------------------------------------------------


def test_with_the_settings_that_the_checks_ask_for_nobody_sees_a_lock(
    sqlite_db: str, brood: Brood
) -> None:
    writers: list[Job] = [(produce, {"process": n}) for n in range(PROCESSES)]
    for process in range(PROCESSES):
        for number in range(STREAMS):
            Streams().open(stream_id(process, number))
    with Brood() as readers:
        readers.start([(follow, {}), (follow, {})])
        readers.go()
        *counts, deleted = brood.run(*writers, (sweep, {}))
        assert deleted > 0
        (logs,) = brood.run((settle, {}))
        assert logs == [list(range(count)) for some in counts for count in some]
        for seen in readers.results():
            assert seen == [
                logs[(n % PROCESSES) * STREAMS] for n in range(READERS // 2)
            ]
    clear("default")


def test_with_the_defaults_of_django_each_append_is_stored_or_told_not_to_be(
    sqlite_db: str, brood: Brood
) -> None:
    file = f"{settings.SQLITE_FILE.removesuffix('.sqlite3')}.defaults.sqlite3"
    assert brood.run((prepare_by_default, {"file": file})) == ["delete"]
    try:
        with Brood() as readers:
            readers.start([(follow_by_default, {"file": file})] * 2)
            readers.go()
            job = {"file": file, "count": 25}
            _, *said = brood.run(
                (hog, {"file": file}),
                *(
                    (produce_by_default, {"process": n, **job})
                    for n in range(PROCESSES)
                ),
            )
            assert brood.run((close_by_default, {"file": file})) == [True]
            (logs,) = brood.run((look_by_default, {"file": file}))
            assert readers.results() == [logs["shared"]] * 2
    finally:
        Path(file).unlink()
    for name, log in logs.items():
        written: dict[str, list[int]] = {}
        unclear: dict[str, set[int]] = {}
        for process, one in enumerate(said):
            written[str(process)] = [n for at, n in one["acknowledged"] if at == name]
            unclear[str(process)] = {n for at, n in one["refused"] if at == name}
        check_whole(log, written, unclear)
