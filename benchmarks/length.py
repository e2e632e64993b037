"""G4: an append to a long stream costs what one to a short stream costs."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django_streams import Streams, StreamWriter, ids

from . import payload
from .figures import Run
from .results import Measured, Outcome, Series
from .sizes import Sizes
from .writers import ALIASES, POOL

FULL = (1_000, 10_000, 20_000, 30_000, 40_000, 50_000)
QUICK = (1_000, 2_000, 3_000)
AROUND = 500
"""Appends timed before and after each length."""


@dataclass(slots=True)
class Growth:
    """One stream: the median milliseconds of an append, length by length."""

    writer: StreamWriter
    costs: list[float] = field(default_factory=list)
    fresh: float = 0.0
    """The same of a new stream at the first length, when this one was longest."""

    @property
    def grown(self) -> float:
        return self.costs[-1] / self.costs[0]


def measure(group: str, sizes: Sizes) -> Outcome:
    lengths = sizes.pick(FULL, QUICK)
    measured, series = [], []
    for alias, name in ALIASES.items():
        found = asyncio.run(_grow_all(alias, lengths, sizes.runs))
        costs = [
            statistics.median(row)
            for row in zip(*(g.costs for g in found), strict=True)
        ]
        beside = statistics.median(g.costs[-1] / g.fresh for g in found)
        notes = [
            f"median append {costs[0]:.3f} ms at {lengths[0]:,}, "
            f"{costs[-1]:.3f} ms at {lengths[-1]:,}; over that to a new stream "
            f"at the same time {beside:.2f}"
        ]
        runs = [Run(growth.grown) for growth in found]
        measured.append(Measured(f"{group}.{name.lower()}", runs, notes))
        series.append(Series("length", name, list(zip(lengths, costs, strict=True))))
    return Outcome(measured, series)


async def _grow_all(alias: str, lengths: Sequence[int], runs: int) -> list[Growth]:
    """*runs* streams, grown to the last of *lengths*.

    They grow side by side, which is faster, chunk by chunk all the same; while
    one is timed the others rest.
    """
    streams = Streams(using=alias)
    found = [Growth(await streams.aopen(ids.new_id())) for _ in range(runs)]
    for length in lengths:
        await asyncio.gather(*(_grow(one.writer, length - AROUND) for one in found))
        for one in found:
            one.costs.append(await _time(one.writer))
            if length == lengths[-1]:
                fresh = await streams.aopen(ids.new_id())
                await _grow(fresh, lengths[0] - AROUND)
                one.fresh = await _time(fresh)
                await fresh.aclose()
    await asyncio.gather(*(one.writer.aclose() for one in found))
    return found


async def _grow(writer: StreamWriter, length: int) -> None:
    chunks = payload.chunks(POOL)
    while writer.cursor < length:
        await writer.aappend(chunks[writer.cursor % POOL])


async def _time(writer: StreamWriter) -> float:
    """Milliseconds of the median of the next appends."""
    chunks = payload.chunks(POOL)
    seconds = []
    for number in range(2 * AROUND):
        start = time.perf_counter()
        await writer.aappend(chunks[number])
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
