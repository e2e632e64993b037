"""Statistics of repeated runs. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """One run's figure, and its floor measured right beside it."""

    figure: float
    floor: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if not self.floor else self.figure / self.floor


@dataclass(frozen=True, slots=True)
class Spread:
    """What is reported of several runs."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Raises ``ValueError`` for no values: no run is no result."""
    if not values:
        raise ValueError("no runs")
    return Spread(statistics.median(values), min(values), max(values))


def ratio(runs: Sequence[Run]) -> float | None:
    """The median of the runs' own ratios, None without floors.

    Not the ratio of the medians: a neighbour that takes half the machine for
    one run slows that run's figure and floor alike.
    """
    ratios = [run.ratio for run in runs]
    known = [value for value in ratios if value is not None]
    return statistics.median(known) if known and len(known) == len(ratios) else None


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that *share* (0 to 1) of all do not exceed."""
    if not values:
        raise ValueError("no values")
    rank = max(1, math.ceil(share * len(values)))
    return sorted(values)[rank - 1]
