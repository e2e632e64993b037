"""UI messages: pure functions of the chunks and the parts, without Django."""

from __future__ import annotations

from .accumulator import Accumulator
from .copies import taken
from .grammar import Grammar
from .reconciler import reconcile, stale_ids
from .repair import repaired
from .sanitiser import sanitise

__all__ = [
    "Accumulator",
    "Grammar",
    "reconcile",
    "repaired",
    "sanitise",
    "stale_ids",
    "taken",
]
