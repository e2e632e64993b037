"""When this process last found a database away, and for how long.

While a database is away nobody can renew a lease. Once it is back, whoever is first
decides: so those who would take what has lapsed give its owner time to come first.
Failed and slow calls are all that there is to know it by. A process that began after
the outage knows nothing of it.
"""

from __future__ import annotations

import math
import time

LONGEST_PAUSE = 1.0
"""Seconds that a call which is repeated during an outage sleeps at most."""

_ONE = 15.0
"""Seconds between two signs that are taken for the same outage."""

_seen: dict[str, tuple[float, float]] = {}
"""When the last outage of a database began, and when it was last noted."""


def note(alias: str, began: float | None = None) -> None:
    """The database did not answer, or refused to be written to, since *began*."""
    now = time.monotonic()
    began = now if began is None else began
    known = _seen.get(alias)
    if known is not None and began - known[1] <= _ONE:
        began = min(began, known[0])
    _seen[alias] = began, now


def last(alias: str) -> tuple[float, float]:
    """Seconds since the last outage, endless without one, and how many it took."""
    began, noted = _seen.get(alias, (-math.inf, -math.inf))
    return time.monotonic() - noted, 0.0 if noted == -math.inf else noted - began


def recent(alias: str, lease: float) -> bool:
    """Whether owners of leases of so many seconds may not have come yet.

    Until the outage is over for everybody it takes one pause of theirs and one of
    ours, or the next renewal. One that took less than half of a lease, which is
    renewed three times in its length, let none lapse.
    """
    ago, took = last(alias)
    return took > lease / 2 and ago < lease + LONGEST_PAUSE
