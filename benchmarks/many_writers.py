"""G3: 100 async writers, each on a stream of its own, and the plot of writers."""

from __future__ import annotations

import asyncio

from . import payload
from .figures import Run
from .floors import FLOORS
from .results import Measured, Outcome, Series
from .sizes import Sizes
from .writers import ALIASES, POOL, writers_rate

WRITERS = 100
SWEEP = (1, 3, 10, 30, 100, 300)


def measure(group: str, sizes: Sizes) -> Outcome:
    measured, series = [], []
    for alias, name in ALIASES.items():
        runs = _runs(alias, sizes)
        measured.append(Measured(f"{group}.{name.lower()}", runs))
        series.append(Series("writers", name, _sweep(alias, sizes)))
    return Outcome(measured, series)


def _runs(alias: str, sizes: Sizes) -> list[Run]:
    texts = payload.texts(POOL)
    floor = FLOORS[alias](alias)
    floor.rate(texts, 0.3)
    runs = []
    for _ in range(sizes.runs):
        bare = floor.rate(texts, sizes.pick(1.0, 0.3))
        rate = asyncio.run(writers_rate(alias, WRITERS, sizes.pick(2.0, 0.5)))
        runs.append(Run(rate, bare))
    floor.close()
    return runs


def _sweep(alias: str, sizes: Sizes) -> list[tuple[float, float]]:
    return [
        (count, asyncio.run(writers_rate(alias, count, sizes.pick(1.0, 0.3))))
        for count in sizes.pick(SWEEP, SWEEP[:5:2])
    ]
