"""A few threads with kept connections, behind the async doors.

``database_sync_to_async`` under the default ``CONN_MAX_AGE=0`` connects anew at
every call (4.7 ms against 0.37, measured), and ``sync_to_async`` puts all work
of a process on one thread. Here ``READ_POOL`` threads keep their connections; a
thread that had nothing to do for ``POOL_IDLE`` seconds closes its own and ends.

A job that may wait for a row which somebody holds says so. Such jobs get all
threads but one, or a few settlements behind a view's long transaction would
stop every reader of the process.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections

from .. import conf
from .kept import keep_connection

R = TypeVar("R")

_Job = tuple[Future[Any], Callable[[], Any], bool]
"""What to tell, what to do, and whether it may wait for a lock."""


class Pool:
    """Runs jobs on at most ``READ_POOL`` daemon threads, first come first served.

    Daemon threads: a process that ends in the middle of a write is the same to
    the database as one that is killed, and that is what the log is built for.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        # Re-entrant: a signal handler may submit from within.
        self._lock = threading.RLock()
        self._threads = 0
        self._idle = 0
        self._queued = 0
        """Jobs that no thread has taken. Not the queue's own size: a thread is
        counted as idle until it says that it took one, and so must the job be,
        or the next job is left to a thread that has just become busy."""
        self._waiting = 0
        """Jobs that may wait, queued or at work: less than there are threads."""
        self._behind: deque[_Job] = deque()
        """More such jobs; one is queued whenever one is done."""

    def submit(self, work: Callable[[], R], *, waits: bool = False) -> Future[R]:
        """Queue *work*, run in a copy of the caller's context.

        *waits*: it may wait for what somebody else has locked. Raises
        ``RuntimeError`` where no thread can be started at all.
        """
        future: Future[R] = Future()
        context = contextvars.copy_context()
        job: _Job = (future, lambda: context.run(work), waits)
        with self._lock:
            if waits and self._waiting >= max(1, conf.get().READ_POOL - 1):
                self._behind.append(job)
                return future
            self._start()
            self._waiting += waits
            self._put(job)
        return future

    def _put(self, job: _Job | None) -> None:
        self._queued += 1
        self._jobs.put(job)

    def _start(self) -> None:
        """Make sure that somebody will serve one more job; with the lock held."""
        # An idle thread may already be promised to a queued job, so count what
        # waits too; one thread too many is better than one too few.
        if self._idle > self._queued or self._threads >= conf.get().READ_POOL:
            return
        self._threads += 1
        try:
            threading.Thread(
                target=self._serve, name="django-streams", daemon=True
            ).start()
        except RuntimeError:
            # The limit of threads. Those that there are will come to it.
            self._threads -= 1
            if not self._threads:
                raise

    def _done_waiting(self) -> None:
        with self._lock:
            if self._behind:
                self._start()
                self._put(self._behind.popleft())
            else:
                self._waiting -= 1

    def close(self) -> None:
        """Let every thread close its connections and end."""
        with self._lock:
            for _ in range(self._threads):
                self._put(None)

    def _serve(self) -> None:
        keep_connection()
        try:
            while (job := self._next()) is not None:
                future, work, waits = job
                # Names that outlive a job would keep its results alive.
                del job
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(work())
                    except BaseException as error:
                        future.set_exception(error)
                del future, work
                if waits:
                    self._done_waiting()
        finally:
            connections.close_all()

    def _next(self) -> _Job | None:
        """The next job, or None once this thread is no longer counted."""
        with self._lock:
            self._idle += 1
        while True:
            job, timed_out = None, False
            try:
                job = self._jobs.get(timeout=conf.get().POOL_IDLE)
            except queue.Empty:
                timed_out = True
            with self._lock:
                # submit() counts idle threads under this lock, so a job that
                # came in after the timeout relies on this thread.
                if timed_out and self._queued:
                    continue
                self._queued -= not timed_out
                self._idle -= 1
                self._threads -= job is None
                return job


_pool: Pool | None = None
_pool_lock = threading.Lock()


def get_pool() -> Pool:
    """This process's pool; a forked child gets its own."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool()
    return _pool


def _forget() -> None:
    # The threads of the parent do not exist in the child, its locks may be held.
    global _pool, _pool_lock
    _pool = None
    _pool_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
