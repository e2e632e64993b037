"""Iterables that block, from a loop that must not."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

_END = object()


async def from_thread(iterable: Iterable[T]) -> AsyncGenerator[T, None]:
    """The items of a blocking *iterable*, taken step by step in a thread.

    All steps run in one context, a copy of the caller's. Closing it closes the
    iterator. Cancelled in the middle of a step: the thread is still in it, cannot
    be stopped from here, and closes the iterator when it comes back.
    """
    steps = _Steps(iterable)
    try:
        while True:
            item: Any = await asyncio.to_thread(steps.next)
            if item is _END:
                return
            yield item
    finally:
        if steps.leave():
            await asyncio.to_thread(steps.close)


class _Steps:
    def __init__(self, iterable: Iterable[Any]) -> None:
        self._iterator = iter(iterable)
        self._context = contextvars.copy_context()
        self._lock = threading.Lock()
        self._stepping = False
        self._left = False

    def next(self) -> Any:
        with self._lock:
            if self._left:
                return _END
            self._stepping = True
        try:
            return self._context.run(next, self._iterator, _END)
        finally:
            with self._lock:
                self._stepping = False
                left = self._left
            if left:
                self.close()

    def leave(self) -> bool:
        """Make no more steps; whether the caller is to close the iterator."""
        with self._lock:
            self._left = True
            return not self._stepping

    def close(self) -> None:
        close = getattr(self._iterator, "close", None)
        if close is not None:
            self._context.run(close)
