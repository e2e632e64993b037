"""Async writers at full speed: what G1, G2, G3 and the plot of writers share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from django_streams import Streams, StreamWriter, ids
from django_streams.types import Json

from . import payload

ALIASES = {"postgresql": "PostgreSQL", "default": "SQLite"}
POOL = 4096
"""Different chunks; they repeat after that many."""

WARM_UP = 20
"""Appends of each writer before the clock starts."""


async def writers_rate(alias: str, writers: int, seconds: float) -> float:
    """Appends per second of *writers* tasks, each on a stream of its own.

    Each awaits every append before the next.
    """
    streams = Streams(using=alias)
    handles = [await streams.aopen(ids.new_id()) for _ in range(writers)]
    chunks: Sequence[Json] = payload.chunks(POOL)
    await asyncio.gather(*(_append(h, chunks[:WARM_UP]) for h in handles))
    start = time.perf_counter()
    counts = await asyncio.gather(
        *(_append_until(h, chunks, start + seconds) for h in handles)
    )
    elapsed = time.perf_counter() - start
    await asyncio.gather(*(handle.aclose() for handle in handles))
    return sum(counts) / elapsed


async def _append(writer: StreamWriter, chunks: Sequence[Json]) -> None:
    for chunk in chunks:
        await writer.aappend(chunk)


async def _append_until(
    writer: StreamWriter, chunks: Sequence[Json], end: float
) -> int:
    count, many = 0, len(chunks)
    while time.perf_counter() < end:
        await writer.aappend(chunks[count % many])
        count += 1
    return count
