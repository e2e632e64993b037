"""A thread that keeps one coroutine running in an event loop of its own.

Whoever appends may have no loop at all (a management command, a worker of a
task queue), a loop that ends with the call (``async_to_sync``) or one it must
not block. Connections that carry wakes therefore belong to none of these but to
one daemon thread a process.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

logger = logging.getLogger(__name__)

RETRY_FIRST = 0.1
RETRY_MOST = 1.0
"""Seconds between a failed session and the next, doubling. A second at most:
what a reader in another process loses meanwhile is the poll's second."""

STEADY = 5.0
"""A session that lasted this long starts the doubling anew when it fails."""


class Session(Protocol):
    """What the thread runs; each failure ends it and a new one is made."""

    async def run(self) -> None:
        """Runs until ``closing`` is seen, or raises when something failed."""

    def look(self) -> None:
        """Called in the loop after :meth:`LoopThread.poke`; must not raise."""


class LoopThread:
    """Runs sessions one after another until closed.

    Every session gets a fresh loop, and its end closes that loop with all tasks
    and connections in it: after a failure nothing half-broken is carried over.
    A failure is logged once, and so is the moment when it works again.
    """

    def __init__(self, what: str, make: Callable[[LoopThread], Session]) -> None:
        """*what* names the thing in log lines; *make* is called in the loop."""
        self._what = what
        self._make = make
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._target: tuple[asyncio.AbstractEventLoop, Session] | None = None
        self._context = contextvars.Context()
        self._poked = False
        self._failed_at: float | None = None

    @property
    def closing(self) -> bool:
        """Whether the session should finish what is pending and return."""
        return self._closing.is_set()

    def start(self) -> None:
        """Start the thread unless it was started or closed; never raises."""
        if not self._unused():
            return
        with self._lock:
            if not self._unused():
                return
            thread = threading.Thread(
                target=contextvars.Context().run,
                args=(self._main,),
                name="django-streams-wake",
                daemon=True,
            )
            # Before it starts: a signal handler that interrupts these lines and
            # wakes must not start a second one.
            self._thread = thread
            try:
                thread.start()
            except RuntimeError as error:  # no more threads, or the process ends
                self._thread = None
                self._fail(error)
                return
        # So that the last wakes of a short command still leave.
        atexit.register(self.close)

    def poke(self) -> None:
        """Have the session look at what changed; any thread, never raises."""
        target = self._target
        # One call on its way is enough: it looks after this thread's change. A
        # poke between two sessions is not lost, a new session looks first.
        if target is None or self._poked:
            return
        self._poked = True
        loop, session = target
        # The waker's own context: the caller's would be copied and kept.
        with suppress(RuntimeError):  # this session's loop has just closed
            loop.call_soon_threadsafe(self._look, session, context=self._context)

    def works(self) -> None:
        """The session says that it does its job; called in the loop."""
        if self._failed_at is not None:
            seconds = time.monotonic() - self._failed_at
            self._failed_at = None
            logger.info("%s works again after %.1f s", self._what, seconds)

    def close(self, timeout: float = 3.0) -> None:
        """End the session and the thread; waits at most *timeout* seconds."""
        if os.getpid() != self._pid:
            return  # a forked child: the thread is the parent's
        self._closing.set()
        thread = self._thread
        if thread is None:
            return
        atexit.unregister(self.close)
        self._poked = False
        self.poke()
        if thread is not threading.current_thread():
            thread.join(timeout)

    def _unused(self) -> bool:
        return self._thread is None and not self.closing

    def _look(self, session: Session) -> None:
        # Cleared before the session looks: a change made from here on pokes anew.
        self._poked = False
        session.look()

    def _main(self) -> None:
        delay = RETRY_FIRST
        while not self.closing:
            began = time.monotonic()
            try:
                # A selector loop whatever the policy says: loops of other kinds
                # do not survive the fork of a process that has one.
                with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                    runner.run(self._run())
            except Exception as error:
                if not self.closing:
                    self._fail(error)
            if time.monotonic() - began > STEADY:
                delay = RETRY_FIRST
            self._closing.wait(delay)
            delay = min(2 * delay, RETRY_MOST)

    async def _run(self) -> None:
        session = self._make(self)
        self._context = contextvars.Context()
        self._poked = False
        self._target = (asyncio.get_running_loop(), session)
        try:
            await session.run()
        finally:
            self._target = None

    def _fail(self, error: BaseException) -> None:
        if self._failed_at is not None:
            return
        self._failed_at = time.monotonic()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        logger.warning(
            "%s does not work (%s: %s). Until it does, readers find what other "
            "processes append by polling",
            self._what,
            type(error).__name__,
            str(error).partition("\n")[0].rstrip("."),
        )
