"""Producers that die, and producers that were only thought to be dead."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from django_streams import StreamChunk, Streams, StreamState
from django_streams.exceptions import StreamsError
from django_streams.ids import stream_key
from django_streams.models import Stream
from django_streams.testing.faults import FaultPoint, Faults
from tests import process
from tests.process import Child

from .logs import Log, clear, stored

STREAM = "one"
LEASE = 0.5
POLL_MAX = 1.0
"""The default of the setting."""

SLACK = 5.0
"""Seconds that a busy machine may take for what takes it milliseconds."""


@pytest.fixture(params=["default", "postgresql", "mariadb"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


# --- what the children do -----------------------------------------------------


def produce_and_stop(alias: str, point: str) -> None:
    """Append for ever; stopped at a *point* of the third append."""

    def stop(point: FaultPoint, connection: BaseDatabaseWrapper) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    writer = Streams(using=alias).open(STREAM, lease=LEASE)
    writer.append("z0")
    writer.push("z1")
    writer.flush()
    errors: list[str] = []

    def attempt(call: Callable[..., Any], *args: Any, **options: Any) -> None:
        try:
            errors.append(f"returned {call(*args, **options)!r}")
        except StreamsError as error:
            errors.append(error.code)

    with Faults(alias, at=point, fault=stop):
        attempt(writer.append, "z2")
    attempt(writer.append, "zombie")
    attempt(writer.extend, ["zombie", "zombie"])
    attempt(writer.push, "zombie")
    attempt(writer.flush)
    attempt(writer.renew)
    attempt(writer.error, "zombie")
    attempt(writer.close, commit=lambda: process.say("committed"), discard=True)
    process.say(errors)


async def aproduce_and_wait(alias: str) -> None:
    """The same through the async door, stopped between two writes."""
    writer = await Streams(using=alias).aopen(STREAM, lease=LEASE)
    for number in range(3):
        await writer.aappend(f"z{number}")
    process.say(writer.epoch)
    process.hear()
    errors: list[str] = []

    async def attempt(call: Any) -> None:
        try:
            errors.append(f"returned {await call!r}")
        except StreamsError as error:
            errors.append(error.code)

    await attempt(writer.aappend("zombie"))
    await attempt(writer.aextend(["zombie"]))
    await attempt(writer.apush("zombie"))
    await attempt(writer.aflush())
    await attempt(writer.arenew())
    await attempt(writer.aclose())
    process.say(errors)


async def produce_twenty(alias: str) -> None:
    """Alive by its lease, and silent after twenty chunks."""
    writer = await Streams(using=alias).aopen(STREAM, lease=LEASE)
    for number in range(20):
        await writer.aappend(number)
    process.say("twenty")
    await asyncio.to_thread(process.hear)


def read_to_the_end(alias: str) -> None:
    streams = Streams(using=alias)
    seen: list[StreamChunk] = []
    for chunk in streams.read(STREAM):
        seen.append(chunk)
        if len(seen) == 20:
            process.say("twenty")
    status = streams.status(STREAM)
    assert status is not None
    process.say([[c.chunk for c in seen], status.state, status.error])


# --- and what comes of it -----------------------------------------------------


def wait_until_stopped(child: Child) -> None:
    os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_producer_that_wakes_up_after_a_takeover_writes_nothing(
    alias: str, moment: str
) -> None:
    """Stopped with an append in hand, or with one just stored."""
    what = "WITH django_streams_stream" if alias == "postgresql" else "COMMIT"
    if (alias, moment) == ("default", "before"):
        what = "BEGIN"  # a process that stops inside of it holds the database
    if (alias, moment) == ("mariadb", "before"):
        what = "UPDATE django_streams_stream"  # for the same reason, of the row
    with Child(produce_and_stop, alias=alias, point=f"{moment} {what}") as zombie:
        wait_until_stopped(zombie)
        writer = Streams(using=alias).open(STREAM, takeover=True)
        there = ["z0", "z1", "z2"] if moment == "after" else ["z0", "z1"]
        assert writer.cursor == len(there)
        assert writer.append("mine") == len(there)
        os.kill(zombie.pid, signal.SIGCONT)
        said = zombie.hear()
        assert said[0] == ("returned 2" if moment == "after" else "fenced")
        assert said[1:3] == ["fenced", "fenced"]
        # A push is refused at the flush, or by the next push.
        assert "fenced" in said[3:5]
        assert said[5:] == ["fenced"] * 3
        assert zombie.wait() == 0
    assert writer.append("mine too") == len(there) + 1
    assert stored(alias, STREAM) == Log(
        StreamState.STREAMING, [*there, "mine", "mine too"]
    )
    assert writer.close() is True


def test_an_async_producer_that_wakes_up_after_a_takeover_writes_nothing(
    alias: str,
) -> None:
    """Its lease has lapsed; its keeper wakes up with it and keeps nothing."""
    with Child(aproduce_and_wait, alias=alias) as zombie:
        epoch = zombie.hear()
        os.kill(zombie.pid, signal.SIGSTOP)
        wait_until_stopped(zombie)
        writer = Streams(using=alias).open(STREAM, takeover=True, lease=60)
        assert writer.epoch == epoch + 1
        assert writer.append("mine") == 3
        lease_end = _row(alias).lease_expires_at
        os.kill(zombie.pid, signal.SIGCONT)
        zombie.say("go on")
        errors = zombie.hear()
        assert errors[:2] == ["fenced", "fenced"]
        assert "fenced" in errors[2:4]
        assert errors[4:] == ["fenced", "fenced"]
        assert zombie.wait() == 0
        assert _row(alias).lease_expires_at == lease_end
    assert stored(alias, STREAM) == Log(
        StreamState.STREAMING, ["z0", "z1", "z2", "mine"]
    )


def _row(alias: str) -> Stream:
    return Stream.objects.using(alias).get(key=stream_key(STREAM))


def test_readers_of_a_producer_that_was_killed_are_told_when_its_lease_is_over(
    alias: str,
) -> None:
    """Those who were there, and those who come later."""
    with (
        Child(produce_twenty, alias=alias) as producer,
    ):
        assert producer.hear() == "twenty"
        with Child(read_to_the_end, alias=alias) as reader:
            assert reader.hear() == "twenty"
            # Its process renews the lease though it appends nothing.
            first = _row(alias).lease_expires_at
            deadline = time.monotonic() + SLACK
            while _row(alias).lease_expires_at == first:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert _row(alias).state == StreamState.STREAMING
            producer.kill()
            last = _row(alias).lease_expires_at
            seen, state, error = reader.hear()
            assert seen == list(range(20))
            assert (state, error) == ("errored", "interrupted")
    row = _row(alias)
    assert row.closed_at is not None
    assert last is not None
    lease = timedelta(seconds=LEASE)
    # Not before it is overdue by one lease: it may only have been slow.
    assert last + lease <= row.closed_at
    assert row.closed_at <= last + lease + timedelta(seconds=POLL_MAX + SLACK)
    late = list(Streams(using=alias).read(STREAM))
    assert [c.chunk for c in late] == list(range(20))
