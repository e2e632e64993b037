"""How large and how often: the full benchmark, or a quick look at it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Sizes:
    quick: bool = False
    """To see that it works; its figures say little."""

    @property
    def runs(self) -> int:
        return self.pick(5, 2)

    def pick(self, full: V, quick: V) -> V:
        return quick if self.quick else full
