"""How an append reaches the store: alone, or together with those of others.

Async producers share one :class:`Committer` a process and database. While its
transaction is in flight, the appends of all streams queue up, and the next
transaction takes them all: a hundred writers cost little more than one.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from . import conf
from .store.base import Append, StreamStore
from .store.kept import keep_connection
from .store.retry import persist

logger = logging.getLogger("django_streams.commit")

Afterwards = Callable[[], None]

Told = Callable[[int | Exception], Afterwards | None]
"""Gets, once and on some thread, the first chunk's seq or what went wrong.

May return what to do when all of a batch have been told; equal ones are done
once.
"""

_HELD_PAUSE = 0.005
_LONGEST_HELD_PAUSE = 0.04
"""Seconds before asking again for a row that somebody else has locked; twice as
long each time, for who holds it for long is asked for nothing by others."""


def store_entry(store: StreamStore, entry: Append) -> int:
    """Store on the calling thread; the first chunk's seq."""
    return persist(
        store,
        lambda: store.append(entry),
        lambda: store.append_again(entry),
        stream_id=entry.stream_id,
        hurry=entry.hurry,
    )


def store_entry_again(store: StreamStore, entry: Append) -> int:
    """The same for an entry whose first attempt ended without an answer."""
    return persist(
        store,
        lambda: store.append_again(entry),
        stream_id=entry.stream_id,
        hurry=entry.hurry,
    )


@dataclass(slots=True)
class _Waiting:
    entry: Append
    told: Told
    pause: float = _HELD_PAUSE
    due: float = 0.0
    """Not to be tried before: its row was held the last time."""


class Committer:
    """Stores the entries of all streams of one database, a batch at a time.

    A batch holds one entry a stream: two rows for one stream in one ``UPDATE …
    FROM`` silently drop one. Its thread has a connection of its own, ends when
    it had nothing to do for ``POOL_IDLE`` seconds, and begins anew.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self._line: deque[_Waiting] = deque()
        """What came out of the queue, in order."""
        self._held: list[_Waiting] = []
        """Entries whose rows somebody holds. Not in line: enough of them would
        fill every batch, and everybody else would wait with them."""
        self._running = False

    def submit(self, entry: Append, told: Told) -> None:
        """Queue *entry*; *told* is called on another thread."""
        self._queue.put(_Waiting(entry, told))
        if not self._running:
            with self._lock:
                if self._running:
                    return
                self._running = True
            try:
                threading.Thread(
                    target=self._run, name="django-streams-commit", daemon=True
                ).start()
            except RuntimeError:
                self._running = False
                self._do_without()

    def _do_without(self) -> None:
        """No thread can be started (a limit, or the end of the interpreter): what
        waits goes to those that there are, or is told."""
        with suppress(queue.Empty):
            while True:
                waiting = self._queue.get_nowait()
                try:
                    self._alone(waiting)
                except RuntimeError as error:
                    if (more := _tell(waiting, error)) is not None:
                        more()

    def _run(self) -> None:
        keep_connection()
        try:
            while batch := self._next():
                self._put_off(self._store_batch(batch))
        except BaseException:
            # The next append begins anew.
            self._running = False
            raise
        finally:
            self._store.reset()

    def _next(self) -> list[_Waiting]:
        """What waits, one entry a stream; nothing when this thread is to end."""
        while not self._line_up():
            pause = conf.get().POOL_IDLE
            if self._held:
                pause = min(w.due for w in self._held) - time.monotonic()
            try:
                self._line.append(self._queue.get(timeout=max(0.0, pause)))
            except queue.Empty:
                if not self._held and self._may_end():
                    return []
        batch: dict[int, _Waiting] = {}
        later: list[_Waiting] = []
        size = 0
        most, entries = conf.get().COMMIT_BYTES, max(1, conf.get().COMMIT_ENTRIES)
        while self._line and len(batch) < entries:
            waiting = self._line.popleft()
            if waiting.entry.pk in batch or (batch and size > most):
                later.append(waiting)
                continue
            batch[waiting.entry.pk] = waiting
            size += sum(map(len, waiting.entry.texts))
        self._line.extendleft(reversed(later))
        return list(batch.values())

    def _line_up(self) -> bool:
        """Take what has come, and behind it what is due again; is there any?"""
        with suppress(queue.Empty):
            while True:
                self._line.append(self._queue.get_nowait())
        if self._held:
            now = time.monotonic()
            self._line += [waiting for waiting in self._held if waiting.due <= now]
            self._held = [waiting for waiting in self._held if waiting.due > now]
        return bool(self._line)

    def _may_end(self) -> bool:
        with self._lock:
            # In this order: who sees it running has put his entry into the queue
            # before the look at it.
            self._running = False
            if self._queue.empty():
                return True
            self._running = True
            return False

    def _store_batch(self, batch: list[_Waiting]) -> list[_Waiting]:
        """Store what can be stored; the entries whose rows were locked."""
        try:
            results = self._store.append_batch([waiting.entry for waiting in batch])
        except Exception as error:
            # Whether any of it took effect is unknown, and one bad entry fails
            # them all: each is found out, and repeated, by itself.
            logger.info("a batch of %d is repeated one by one: %s", len(batch), error)
            self._store.reset()
            for waiting in batch:
                self._alone(waiting)
            return []
        locked = []
        afterwards = set()
        for waiting, result in zip(batch, results, strict=True):
            if result is None:
                locked.append(waiting)
            elif (more := _tell(waiting, result)) is not None:
                afterwards.add(more)
        for more in afterwards:
            more()
        return locked

    def _put_off(self, held: list[_Waiting]) -> None:
        now = time.monotonic()
        for waiting in held:
            waiting.due = now + waiting.pause
            waiting.pause = min(2 * waiting.pause, _LONGEST_HELD_PAUSE)
        self._held += held

    def _alone(self, waiting: _Waiting) -> None:
        again = partial(store_entry_again, self._store, waiting.entry)

        def work() -> None:
            if (more := _tell(waiting, outcome(again))) is not None:
                more()

        self._store.submit(work, waits=True)


def outcome(work: Callable[[], int]) -> int | Exception:
    """What *work* returns or raises."""
    try:
        return work()
    except Exception as error:
        return error


def _tell(waiting: _Waiting, result: int | Exception) -> Afterwards | None:
    try:
        return waiting.told(result)
    except Exception:
        # The thread that stores for everybody must go on.
        logger.exception("the producer of %r was not told", waiting.entry.stream_id)
        return None


_committers: dict[str, Committer] = {}


def get_committer(store: StreamStore) -> Committer:
    """This process's committer for the database of *store*."""
    committer = _committers.get(store.alias)
    if committer is None:
        committer = _committers.setdefault(store.alias, Committer(store))
    return committer


# The parent's threads do not exist in a child, its locks may be held.
os.register_at_fork(after_in_child=_committers.clear)
