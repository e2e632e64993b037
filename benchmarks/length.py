"""G4: an append to a long stream costs what one to a short stream costs."""

from __future__ import annotations

import asyncio
import time

from django_streams import Streams, StreamWriter, ids

from . import payload
from .figures import Run, quantile
from .results import Measured, Outcome, Series
from .sizes import Sizes
from .writers import ALIASES, POOL

FULL = (1_000, 10_000, 20_000, 30_000, 40_000, 50_000)
QUICK = (1_000, 2_000, 3_000)
AROUND = 500
"""Appends timed before and after each length."""


def measure(group: str, sizes: Sizes) -> Outcome:
    lengths = sizes.pick(FULL, QUICK)
    measured, series = [], []
    for alias, name in ALIASES.items():
        costs = asyncio.run(_costs(alias, lengths, sizes.runs))
        runs = [Run(cost[-1] / cost[0]) for cost in costs]
        first, last = (
            quantile([1000 * cost[place] for cost in costs], 0.5) for place in (0, -1)
        )
        note = f"median append {first:.3f} ms at {lengths[0]}, {last:.3f} ms at "
        measured.append(
            Measured(f"{group}.{name.lower()}", runs, [f"{note}{lengths[-1]}"])
        )
        points = [
            (length, quantile([1000 * cost[place] for cost in costs], 0.5))
            for place, length in enumerate(lengths)
        ]
        series.append(Series("length", name, points))
    return Outcome(measured, series)


async def _costs(alias: str, lengths: tuple[int, ...], runs: int) -> list[list[float]]:
    """For each of *runs* streams, the median seconds of an append at each length.

    The streams grow side by side, which is faster, chunk by chunk all the same;
    while one is timed the others rest.
    """
    streams = Streams(using=alias)
    writers = [await streams.aopen(ids.new_id()) for _ in range(runs)]
    costs: list[list[float]] = [[] for _ in writers]
    for length in lengths:
        await asyncio.gather(*(_grow(w, length - AROUND) for w in writers))
        for writer, cost in zip(writers, costs, strict=True):
            cost.append(quantile(await _time(writer, 2 * AROUND), 0.5))
    await asyncio.gather(*(writer.aclose() for writer in writers))
    return costs


async def _grow(writer: StreamWriter, length: int) -> None:
    chunks = payload.chunks(POOL)
    while writer.cursor < length:
        await writer.aappend(chunks[writer.cursor % POOL])


async def _time(writer: StreamWriter, count: int) -> list[float]:
    chunks = payload.chunks(POOL)
    seconds = []
    for number in range(count):
        start = time.perf_counter()
        await writer.aappend(chunks[number])
        seconds.append(time.perf_counter() - start)
    return seconds
