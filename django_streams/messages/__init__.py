"""UI messages: pure functions of the chunks and the parts, without Django."""

from __future__ import annotations

from .accumulator import Accumulator
from .grammar import Grammar

__all__ = ["Accumulator", "Grammar"]
