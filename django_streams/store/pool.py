"""A few threads with kept connections, behind the async doors.

``database_sync_to_async`` under the default ``CONN_MAX_AGE=0`` connects anew at
every call (4.7 ms against 0.37, measured), and ``sync_to_async`` puts all work
of a process on one thread. Here ``READ_POOL`` threads keep their connections; a
thread that had nothing to do for ``POOL_IDLE`` seconds closes its own and ends.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections

from .. import conf

R = TypeVar("R")

_Job = tuple[Future[Any], Callable[[], Any]]


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

    def submit(self, work: Callable[[], R]) -> Future[R]:
        """Queue *work*, run in a copy of the caller's context."""
        future: Future[R] = Future()
        context = contextvars.copy_context()
        with self._lock:
            # An idle thread may already be promised to a queued job, so count
            # what waits too; one thread too many is better than one too few.
            if (
                self._idle <= self._jobs.qsize()
                and self._threads < conf.get().READ_POOL
            ):
                self._threads += 1
                threading.Thread(
                    target=self._serve, name="django-streams", daemon=True
                ).start()
            self._jobs.put((future, lambda: context.run(work)))
        return future

    def close(self) -> None:
        """Let every thread close its connections and end."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)

    def _serve(self) -> None:
        try:
            while (job := self._next()) is not None:
                future, work = job
                # Names that outlive a job would keep its results alive.
                del job
                if future.set_running_or_notify_cancel():
                    try:
                        future.set_result(work())
                    except BaseException as error:
                        future.set_exception(error)
                del future, work
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
                if timed_out and not self._jobs.empty():
                    continue
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
