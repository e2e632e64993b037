"""Hands results from other threads to an event loop, many in one hand-over.

``call_soon_threadsafe`` writes to a socket and takes a lock; a group commit
that answers a hundred producers on one loop does it once.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


class Delivery:
    """The way to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weak: a loop that is gone takes its entry in the table with it.
        self._loop = weakref.ref(loop)
        self._lock = threading.Lock()
        self._results: deque[tuple[asyncio.Future[int], int | Exception]] = deque()
        self._called = False

    def goes_to(self, loop: asyncio.AbstractEventLoop) -> bool:
        return self._loop() is loop

    def post(
        self, future: asyncio.Future[int], result: int | Exception
    ) -> Callable[[], None]:
        """Keep *result* for *future*; what is returned hands all over. Any thread."""
        with self._lock:
            self._results.append((future, result))
        return self.hand_over

    def hand_over(self) -> None:
        """Settle on the loop what was posted; lost if the loop has ended."""
        with self._lock:
            if self._called or not self._results:
                return
            self._called = True
        loop = self._loop()
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # Closed: whoever waited there has ended with it.
                self._results.clear()

    def _deliver(self) -> None:
        with self._lock:
            results, self._results = self._results, deque()
            self._called = False
        for future, result in results:
            # Done already: whoever waited was cancelled.
            if not future.done():
                if isinstance(result, int):
                    future.set_result(result)
                else:
                    future.set_exception(result)


_deliveries: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Delivery] = (
    weakref.WeakKeyDictionary()
)


_latest: Delivery | None = None
"""The one asked for last: most processes have one loop, and a weak dictionary
costs as much as the future."""


def delivery_to(loop: asyncio.AbstractEventLoop) -> Delivery:
    """The delivery to the running *loop*; call it there."""
    global _latest
    latest = _latest
    if latest is not None and latest.goes_to(loop):
        return latest
    delivery = _deliveries.get(loop)
    if delivery is None:
        delivery = _deliveries[loop] = Delivery(loop)
    _latest = delivery
    return delivery
