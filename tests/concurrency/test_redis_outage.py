"""A reader in one process follows a producer in another while Redis is away."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from django_streams import Streams
from tests import process
from tests.own_redis import SETTINGS, OwnRedis
from tests.process import Child

pytestmark = pytest.mark.needs("postgresql", "redis", "redis-server")

STREAM = "followed through an outage"
AWAY = 5.0
"""Seconds for which Redis is stopped."""

LATEST = 1.5
"""Seconds after which a chunk must be with the reader at the latest."""


async def produce(alias: str) -> None:
    """Appends before, during and after; says when each append returned.

    The monotonic clock of Linux is the same in all processes.
    """
    chance = random.Random(5)  # noqa: S311  (repeatable, not secret)
    returned: list[float] = []

    async def append_for(seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await writer.aappend({"n": len(returned), "text": "x" * 60})
            returned.append(time.monotonic())
            # Words, and pauses in which a follower's poll grows slow.
            await asyncio.sleep(0.03 if chance.random() < 0.9 else chance.random())

    writer = await Streams(using=alias).aopen(STREAM, lease=10)
    process.say("opened")
    for part, seconds in (("before", 2.0), ("away", AWAY), ("after", 2.0)):
        assert await asyncio.to_thread(process.hear) == part
        first = len(returned)
        await append_for(seconds)
        process.say([first, len(returned)])
    await writer.aclose()
    closed = time.monotonic()
    process.say({"returned": returned, "closed": closed})


async def follow(alias: str) -> None:
    """Reads to the end once told to; says what arrived when."""
    await asyncio.to_thread(process.hear)
    arrived: list[tuple[int, int, float]] = []
    batches = Streams(using=alias).aread_batches(
        STREAM, on_up_to_date=lambda: process.say("following")
    )
    async with aclosing(batches):
        async for batch in batches:
            now = time.monotonic()
            arrived += [(chunk.seq, chunk.chunk["n"], now) for chunk in batch]
    process.say({"arrived": arrived, "ended": time.monotonic()})


@pytest.mark.parametrize("kind", SETTINGS)
def test_every_chunk_arrives_in_time_though_redis_stops_for_five_seconds(
    kind: str, postgresql_db: str, record_property: Callable[[str, Any], None]
) -> None:
    with OwnRedis() as redis:
        env = {
            "DJANGO_SETTINGS_MODULE": SETTINGS[kind],
            "DS_TEST_REDIS_URL": redis.url,
        }
        with (
            Child(produce, env=env, alias=postgresql_db) as producer,
            Child(follow, env=env, alias=postgresql_db) as reader,
        ):
            assert producer.hear() == "opened"
            reader.say("go")
            assert reader.hear() == "following"
            parts: dict[str, list[int]] = {}
            for part in ("before", "away", "after"):
                if part == "away":
                    redis.stop()
                elif part == "after":
                    redis.start()
                producer.say(part)
                parts[part] = producer.hear()
            sent, read = producer.hear(), reader.hear()
            complaints = producer.stderr()
    assert "does not work" in complaints, "the outage was noticed"
    count = len(sent["returned"])
    assert [(seq, n) for seq, n, _ in read["arrived"]] == [(n, n) for n in range(count)]
    late = [at - sent["returned"][seq] for seq, _, at in read["arrived"]]
    for part, (first, end) in parts.items():
        hundredths = statistics.quantiles(late[first:end], n=100)
        for name, value in (("p50", hundredths[49]), ("p99", hundredths[98])):
            record_property(f"{part} {name}", f"{1000 * value:.1f} ms")
    assert max(late) <= LATEST
    assert read["ended"] - sent["closed"] <= LATEST
