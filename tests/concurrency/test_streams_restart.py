"""The database goes away in mid-stream and comes back."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from django_streams import Streams, StreamState
from django_streams.exceptions import StreamUnavailableError
from tests import process
from tests.own_postgresql import OwnPostgreSQL
from tests.process import Child
from tests.settings import POSTGRESQL_NAME

from .brood import Brood, Ready
from .logs import check_whole, stored

AWAY = 1.5
"""Seconds without a database; a write waits for ``RETRY_SECONDS``."""

PAUSE = 0.01
"""Seconds between two chunks of a producer."""

COUNT = 200
SETTINGS = {"CHANNEL_LAYER": None}


# --- what the children do -----------------------------------------------------


def migrate() -> None:
    call_command("migrate", database="postgresql", verbosity=0)


def produce(ready: Ready, stream_id: str) -> list[int]:
    """Append one by one; those that returned."""
    acknowledged = []
    with override_settings(DJANGO_STREAMS=SETTINGS):
        writer = Streams(using="postgresql").open(stream_id)
        ready()
        for number in range(COUNT):
            seq = writer.append(["sync", number])
            assert seq == number
            acknowledged.append(number)
            time.sleep(PAUSE)
        assert writer.close() is True
    return acknowledged


async def aproduce(ready: Ready, stream_id: str) -> list[int]:
    """Append and push under a lease that outlives the outage."""
    chance = random.Random(1)  # noqa: S311  (repeatable)
    with override_settings(DJANGO_STREAMS=SETTINGS):
        writer = await Streams(using="postgresql").aopen(stream_id, lease=10)
        ready()
        for number in range(COUNT):
            if chance.random() < 0.5:
                assert await writer.aappend(["async", number]) == number
            else:
                await writer.apush(["async", number])
            await asyncio.sleep(PAUSE)
        assert await writer.aclose() is True
    return list(range(COUNT))


def follow(ready: Ready, stream_id: str) -> list[Any]:
    with override_settings(DJANGO_STREAMS=SETTINGS):
        Streams(using="postgresql").open(stream_id)
        batches = Streams(using="postgresql").read_batches(
            stream_id, on_up_to_date=lambda: ready(wait=False)
        )
        return [chunk.chunk for batch in batches for chunk in batch]


async def afollow(ready: Ready, stream_id: str) -> list[Any]:
    log: list[Any] = []
    with override_settings(DJANGO_STREAMS=SETTINGS):
        streams = Streams(using="postgresql")
        await streams.aopen(stream_id)
        async for batch in streams.aread_batches(
            stream_id, on_up_to_date=lambda: ready(wait=False)
        ):
            log += [chunk.chunk for chunk in batch]
    return log


async def give_up() -> None:
    """Write and follow with little patience, through an outage."""
    seen: list[Any] = []

    async def read() -> None:
        async for chunk in streams.aread("impatient", start=len(seen)):
            seen.append(chunk.chunk)

    with override_settings(DJANGO_STREAMS={**SETTINGS, "RETRY_SECONDS": 0.5}):
        streams = Streams(using="postgresql")
        writer = await streams.aopen("impatient")
        await writer.aextend([0, 1])
        reader = asyncio.create_task(read())
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        process.say("ready")
        await asyncio.to_thread(process.hear)
        for _ in range(2):
            with pytest.raises(StreamUnavailableError):
                await writer.aappend(2)
        with pytest.raises(StreamUnavailableError):
            await reader
        process.say("given up")
        await asyncio.to_thread(process.hear)
        assert await writer.aappend(2) == 2
        assert await writer.aclose() is True
        await read()
        process.say(seen)


def look(ready: Ready, stream_id: str) -> list[Any]:
    ready()
    log = stored("postgresql", stream_id)
    assert log is not None
    return [log.state, log.chunks]


# --- and what comes of it -----------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgreSQL]:
    with OwnPostgreSQL() as server:
        server.create(POSTGRESQL_NAME)
        with Child(migrate, env=server.env) as child:
            assert child.wait(40) == 0
        yield server


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_producers_and_readers_go_on_when_the_database_is_back(
    server: OwnPostgreSQL, how: signal.Signals
) -> None:
    """After an orderly restart and after a crash."""
    names = [f"sync {how.name}", f"async {how.name}"]
    with Brood(env=server.env) as brood:
        writers = [
            (produce, {"stream_id": names[0]}),
            (aproduce, {"stream_id": names[1]}),
        ]
        readers = [
            (follower, {"stream_id": name})
            for follower in (follow, afollow)
            for name in names
        ]
        brood.start([*writers, *readers])
        brood.go()
        time.sleep(COUNT * PAUSE / 3)
        server.stop(how)
        time.sleep(AWAY)
        server.start()
        said = brood.results()
        found = brood.run(*((look, {"stream_id": name}) for name in names))
    for place, name in enumerate(("sync", "async")):
        state, log = found[place]
        assert state == StreamState.COMPLETED
        check_whole(log, {name: said[place]}, {})
        assert said[2 + place] == log
        assert said[4 + place] == log


def test_who_waits_no_longer_is_told_and_can_come_back(server: OwnPostgreSQL) -> None:
    with Child(give_up, env=server.env) as child:
        assert child.hear() == "ready"
        server.stop()
        try:
            child.say("it is gone")
            assert child.hear() == "given up"
        finally:
            server.start()
        child.say("it is back")
        assert child.hear() == [0, 1, 2]
