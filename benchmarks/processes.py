"""G10: a producer in one process, a reader in another, with Redis and without."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import aclosing
from typing import Any

from django_streams import Streams, ids
from tests import process
from tests.own_redis import OwnRedis
from tests.process import Child

from .figures import Run, quantile
from .payload import stamped
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import ALIAS

_PATIENCE = 60.0


def measure(group: str, sizes: Sizes) -> Outcome:
    steady, rough = sizes.pick(300, 40), sizes.pick(60, 20)
    halves, hundredths, latest = [], [], []
    with OwnRedis() as redis:
        env = {"BENCH_REDIS": redis.url}
        with (
            Child(produce, env=env) as producer,
            Child(follow, env=env) as reader,
            Child(alone, env=env) as both,
        ):
            _apart(producer, reader, 20, rough=False)
            for _ in range(sizes.runs):
                both.say({"count": steady})
                floors = both.hear(_PATIENCE)
                late, _ = _apart(producer, reader, steady, rough=False)
                halves.append(_run(late, floors, 0.5))
                hundredths.append(_run(late, floors, 0.99))
            redis.stop()
            for _ in range(sizes.runs):
                _, after = _apart(producer, reader, rough, rough=True)
                latest.append(Run(max(after)))
    note = "the floor: producer and reader on one event loop"
    return Outcome(
        [
            Measured(f"{group}.p50", halves, [note]),
            Measured(f"{group}.p99", hundredths),
            Measured(f"{group}.down", latest, ["seconds after the append returned"]),
        ]
    )


def _run(late: list[float], floors: list[float], share: float) -> Run:
    return Run(1000 * quantile(late, share), 1000 * quantile(floors, share))


def _apart(
    producer: Child, reader: Child, count: int, *, rough: bool
) -> tuple[list[float], list[float]]:
    """Seconds to each receipt, from before the append and from after it."""
    stream_id = ids.new_id()
    producer.say({"stream": stream_id, "count": count, "rough": rough})
    assert producer.hear(_PATIENCE) == "opened"
    reader.say(stream_id)
    assert reader.hear(_PATIENCE) == "following"
    producer.say("go")
    returned: list[float] = producer.hear(_PATIENCE)
    arrived: list[tuple[float, float]] = reader.hear(_PATIENCE)
    if len(arrived) != len(returned):
        raise RuntimeError(f"{len(arrived)} of {len(returned)} chunks arrived")
    return (
        [at - sent for sent, at in arrived],
        [at - done for (_, at), done in zip(arrived, returned, strict=True)],
    )


# In the children, until they are killed


async def produce() -> None:
    streams = Streams(using=ALIAS)
    while True:
        task = await asyncio.to_thread(process.hear)
        async with await streams.aopen(task["stream"]) as writer:
            process.say("opened")
            await asyncio.to_thread(process.hear)
            returned = await _append(writer, task["count"], task["rough"])
        process.say(returned)


async def follow() -> None:
    streams = Streams(using=ALIAS)
    while True:
        stream_id = await asyncio.to_thread(process.hear)
        process.say(await _read(streams, stream_id, lambda: process.say("following")))


async def alone() -> None:
    streams = Streams(using=ALIAS)
    while True:
        task = await asyncio.to_thread(process.hear)
        writer = await streams.aopen(ids.new_id())
        ready = asyncio.Event()
        reading = asyncio.create_task(_read(streams, writer.stream_id, ready.set))
        await ready.wait()
        await _append(writer, task["count"], False)
        await writer.aclose()
        process.say([at - sent for sent, at in await reading])


async def _append(writer: Any, count: int, rough: bool) -> list[float]:
    """When each append returned."""
    chance = random.Random(count)  # noqa: S311  (repeatable)
    returned = []
    for number in range(count):
        pause = chance.uniform(0.005, 0.035)
        if rough and chance.random() < 0.1:
            # Long enough for a follower's poll to have grown slow.
            pause = chance.uniform(0.2, 1.2)
        await asyncio.sleep(pause)
        await writer.aappend(stamped(time.monotonic(), number))
        returned.append(time.monotonic())
    return returned


async def _read(streams: Streams, stream_id: str, ready: Any) -> list[list[float]]:
    """When each chunk was sent, and when it came."""
    arrived = []
    batches = streams.aread_batches(stream_id, on_up_to_date=ready)
    async with aclosing(batches):
        async for batch in batches:
            at = time.monotonic()
            arrived += [[chunk.chunk["at"], at] for chunk in batch]
    return arrived
