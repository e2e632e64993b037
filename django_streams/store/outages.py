"""When this process last found a database away.

While a database is away nobody can renew a lease. Once it is back, whoever is first
decides: so those who would take what has lapsed give its owner time to come first.
A failed call is all that there is to know it by. A process that began after the
outage knows nothing of it.
"""

from __future__ import annotations

import math
import time

LONGEST_PAUSE = 1.0
"""Seconds that a call which is repeated during an outage sleeps at most."""

_seen: dict[str, float] = {}


def note(alias: str) -> None:
    """The database did not answer, or refused to be written to."""
    _seen[alias] = time.monotonic()


def ago(alias: str) -> float:
    """Seconds since that was last noted; endless if it never was."""
    return time.monotonic() - _seen.get(alias, -math.inf)


def recent(alias: str, lease: float) -> bool:
    """Whether owners of leases of so many seconds may not have come yet.

    Until the outage is over for everybody it takes one pause of theirs and one of
    ours, or the next renewal.
    """
    return ago(alias) < lease + LONGEST_PAUSE
