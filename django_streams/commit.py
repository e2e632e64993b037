"""How an append reaches the store: alone, or together with those of others.

Async producers share one :class:`Committer` a process and database. While its
transaction is in flight, the appends of all streams queue up, and the next
transaction takes them all: a hundred writers cost little more than one.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from . import conf
from .store.base import Append, StreamStore
from .store.retry import persist

logger = logging.getLogger("django_streams.commit")

Afterwards = Callable[[], None]

Told = Callable[[int | Exception], Afterwards | None]
"""Gets, once and on some thread, the first chunk's seq or what went wrong.

May return what to do when all of a batch have been told; equal ones are done
once.
"""

_LOCKED_PAUSE = 0.005
"""Before asking again for rows that somebody else has locked, in seconds."""


def store_entry(store: StreamStore, entry: Append) -> int:
    """Store on the calling thread; the first chunk's seq."""
    return persist(
        store,
        lambda: store.append(entry),
        lambda: store.append_again(entry),
        stream_id=entry.stream_id,
    )


def store_entry_again(store: StreamStore, entry: Append) -> int:
    """The same for an entry whose first attempt ended without an answer."""
    return persist(store, lambda: store.append_again(entry), stream_id=entry.stream_id)


@dataclass(slots=True)
class _Waiting:
    entry: Append
    told: Told


class Committer:
    """Stores the entries of all streams of one database, a batch at a time.

    A batch holds one entry a stream: two rows for one stream in one ``UPDATE …
    FROM`` silently drop one. Its thread has a connection of its own, ends when
    it had nothing to do for ``POOL_IDLE`` seconds, and begins anew.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._lock = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._running = False

    def submit(self, entry: Append, told: Told) -> None:
        """Queue *entry*; *told* is called on another thread."""
        with self._lock:
            self._queue.append(_Waiting(entry, told))
            if not self._running:
                self._running = True
                threading.Thread(
                    target=self._run, name="django-streams-commit", daemon=True
                ).start()
            else:
                self._lock.notify()

    def _run(self) -> None:
        try:
            while batch := self._next():
                locked = self._store_batch(batch)
                if locked:
                    self._requeue(locked, alone=len(locked) == len(batch))
        finally:
            self._store.reset()

    def _next(self) -> list[_Waiting]:
        """What waits, one entry a stream; nothing when this thread is to end."""
        with self._lock:
            if not self._queue:
                self._lock.wait(conf.get().POOL_IDLE)
            batch: dict[int, _Waiting] = {}
            later: list[_Waiting] = []
            size = 0
            most = conf.get().COMMIT_BYTES
            while self._queue and len(batch) < conf.get().COMMIT_ENTRIES:
                waiting = self._queue.popleft()
                if waiting.entry.pk in batch or (batch and size > most):
                    later.append(waiting)
                    continue
                batch[waiting.entry.pk] = waiting
                size += sum(map(len, waiting.entry.texts))
            self._queue.extendleft(reversed(later))
            if not batch:
                self._running = False
            return list(batch.values())

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

    def _requeue(self, locked: list[_Waiting], *, alone: bool) -> None:
        with self._lock:
            self._queue.extendleft(reversed(locked))
            if alone and len(self._queue) == len(locked):
                self._lock.wait(_LOCKED_PAUSE)

    def _alone(self, waiting: _Waiting) -> None:
        again = partial(store_entry_again, self._store, waiting.entry)

        def work() -> None:
            if (more := _tell(waiting, outcome(again))) is not None:
                more()

        self._store.submit(work)


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
