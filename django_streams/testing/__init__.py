"""Tools for tests of projects that use the library; each is loaded at first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.memory import MemoryStore
    from .wakers import LossyWaker

__all__ = ["LossyWaker", "MemoryStore"]

_FIRST_USE = {"LossyWaker": ".wakers", "MemoryStore": "..store.memory"}


def __getattr__(name: str) -> Any:
    if (module := _FIRST_USE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIRST_USE})
