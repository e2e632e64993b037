"""Wakes inside one process: a key and who wants to be called."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from .base import Waker

logger = logging.getLogger(__name__)


class _Listener:
    __slots__ = ("callback", "first_error")

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback = callback
        self.first_error = threading.Lock()
        """Taken, and kept, by the thread that logs."""


class LocalWaker(Waker):
    """Calls the listeners of its own process, in the thread that wakes.

    Listeners made before a fork are not heard in the child: take a new waker
    there (:func:`django_streams.wake.get_waker` does).
    """

    def __init__(self) -> None:
        # Reentrant: a signal handler or a finaliser may interrupt the holder in
        # its own thread and come in here.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._listeners: dict[str, dict[_Listener, None]] = {}

    def wake(self, key: str) -> None:
        """Call everyone who listens to *key*; a listener's error is logged once."""
        listeners = self._listeners.get(key)
        if not listeners:
            return
        # A copy made in one step and no lock: callbacks may listen and stop, and
        # a wake waits for nobody.
        for listener in listeners.copy():
            try:
                listener.callback()
            except Exception:
                # Once a listener: the usual case is an event loop that was
                # closed under it, which would say so at every append.
                if listener.first_error.acquire(blocking=False):
                    logger.exception("A listener to wakes of %s failed", key)

    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`Waker.listen`; the same callback may listen several times."""
        listener = _Listener(callback)
        with self._lock:
            listeners = self._listeners.setdefault(key, {})
            listeners[listener] = None
            # A finaliser that ran between these lines may have stopped the last
            # of the others and taken the dict out.
            self._listeners[key] = listeners

        def stop() -> None:
            listeners.pop(listener, None)
            if os.getpid() != self._pid:
                return  # the lock may have been copied while another thread held it
            with self._lock:
                if not listeners and self._listeners.get(key) is listeners:
                    del self._listeners[key]

        return stop

    def close(self) -> None:
        """Forget every listener."""
        self._listeners = {}
