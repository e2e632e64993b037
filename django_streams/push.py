"""The buffer behind ``push``: at most one write in flight, and a small queue.

The first pushed chunk is written at once; what arrives while a write is in
flight goes with the next one. So a slow producer is durable at every chunk, a
fast one fills its writes, and no timer decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from .commit import Told
from .exceptions import StreamUnavailableError

Write = Callable[[list[str], Told], object]
"""Stores a list of texts in the background and tells the outcome."""


class PushBuffer:
    """Thread-safe; it never holds the writer, which would never be dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        # Re-entrant: a write may be over before it returns.
        self._lock = threading.RLock()
        self._texts: list[str] = []
        self._flight: Future[None] | None = None
        self._failure: Exception | None = None

    def put(self, text: str, write: Write) -> Future[None] | None:
        """Queue one text; or, when full, what to wait for before trying again.

        Raises what a write in the background failed with, once.
        """
        with self._lock:
            self._raise_failure()
            if len(self._texts) >= self._limit and self._flight is not None:
                return self._flight
            self._texts.append(text)
            if self._flight is None:
                self._start(write)
            return None

    def drain(self, write: Write) -> Future[None] | None:
        """What to wait for before asking again; None when all is stored.

        Raises what a write in the background failed with, once; texts whose
        fate is unknown then stay queued and go out first with the next write.
        """
        with self._lock:
            self._raise_failure()
            if self._flight is None and self._texts:
                self._start(write)
            return self._flight

    def take(self) -> list[str]:
        """What is queued, for the caller to store after what is in flight."""
        with self._lock:
            texts, self._texts = self._texts, []
            return texts

    def drop(self) -> Future[None] | None:
        """Forget what is queued; what to wait for before what is in flight, should
        it come back, can be forgotten too."""
        with self._lock:
            self._texts.clear()
            self._failure = None
            return self._flight

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _start(self, write: Write) -> None:
        """Write what is queued; called with the lock held."""
        texts, self._texts = self._texts, []
        flight: Future[None] = Future()
        # Nobody may cancel it: what is being written will be written.
        flight.set_running_or_notify_cancel()
        self._flight = flight
        write(texts, lambda result: self._landed(flight, texts, result, write))

    def _landed(
        self,
        flight: Future[None],
        texts: list[str],
        result: int | Exception,
        write: Write,
    ) -> None:
        error = result if isinstance(result, Exception) else None
        with self._lock:
            self._flight = None
            if isinstance(error, StreamUnavailableError):
                self._texts[:0] = texts
            if error is not None:
                self._failure = error
            elif self._texts:
                self._start(write)
        # After the next write began: who waited looks at the buffer again.
        flight.set_result(None)
