"""G1 and G2: one async writer, each append awaited, beside the bare driver."""

from __future__ import annotations

import asyncio

from . import payload
from .figures import Run
from .floors import FLOORS
from .results import Measured, Outcome
from .sizes import Sizes
from .writers import POOL, writers_rate


def measure(group: str, sizes: Sizes) -> Outcome:
    alias = {"G1": "postgresql", "G2": "default"}[group]
    seconds = sizes.pick(1.5, 0.3)
    texts = payload.texts(POOL)
    floor = FLOORS[alias](alias)
    floor.rate(texts, seconds / 3)
    runs = []
    for _ in range(sizes.runs):
        bare = floor.rate(texts, seconds)
        runs.append(Run(asyncio.run(writers_rate(alias, 1, seconds)), bare))
    floor.close()
    return Outcome([Measured(group, runs)])
