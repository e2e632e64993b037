"""Settles what nobody looks after any more, deletes what is old and merges
what was left in small blocks.

The function behind ``manage.py gc_streams``; sync, to be run beside traffic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from asgiref.sync import async_to_sync

from . import conf
from .exceptions import StreamsError, StreamUnavailableError
from .signals import stream_deleted, stream_settled
from .store import get_store, sweeping
from .store.generic import GenericStore
from .store.retry import persist
from .streams import Streams
from .turns import recovery, trimming
from .types import StreamState
from .wake import get_waker

logger = logging.getLogger("django_streams.gc")

S = TypeVar("S", sweeping.Neglected, sweeping.Old, sweeping.Scattered)

STALE = 300.0
"""Five minutes of silence, as in the original's stale sweep."""

COMPLETED = 86_400.0
"""A day after settling, as in the original."""

BATCH_SIZE = 500


@dataclass(slots=True)
class Summary:
    """What one run found and did; with *dry_run* only ``found`` and ``bytes``."""

    found: int = 0
    settled: int = 0
    deleted: int = 0
    bytes: int = 0
    """Chunk text that was deleted (or, in a dry run, would be)."""
    merged: int = 0
    """Rows saved by merging blocks."""
    events: int = 0
    """Old events of conversations that were deleted."""


def collect(
    *,
    using: str = "default",
    stale: float = STALE,
    completed: float = COMPLETED,
    batch_size: int = BATCH_SIZE,
    dry_run: bool = False,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """One pass over the streams of a database.

    Ends turns that nobody ran or recovered for *stale* seconds: what was stored
    of their replies becomes their message. At most *batch_size* of them.

    Settles as errored: ``interrupted`` what has neither appended nor held a
    live lease for *stale* seconds or whose lease lapsed one lease ago;
    ``cancelled`` what did not stop within ``CANCEL_GRACE`` of being asked.
    Deletes what was settled more than *completed* seconds ago. Merges small
    blocks that no writer looks after (``ROLLUP_AFTER``), and on the chat's
    database deletes events of conversations that are older than ``EVENT_AGE``,
    each conversation's newest excepted.

    Every stream is a transaction of its own, so a kill loses nothing and the
    next run goes on; two runs at once do the work once. *progress* is called
    after each batch of *batch_size*. Raises ``ValueError`` for negative times.
    """
    if stale < 0 or completed < 0 or batch_size < 1:
        raise ValueError(
            f"stale ({stale}) and completed ({completed}) must not be negative, "
            f"batch_size ({batch_size}) must be positive"
        )
    store = get_store(using)
    if not isinstance(store, GenericStore):
        raise StreamsError(f"gc needs a database store, not {store.vendor}")
    sweep = _Sweep(store, stale, completed, batch_size, dry_run, progress)
    sweep.end_turns()
    sweep.settle()
    sweep.delete()
    if not dry_run:
        sweep.merge()
        sweep.trim()
    return sweep.summary


def settle(*, using: str = "default") -> int:
    """Only the first half of :func:`collect`; how many streams were settled.

    One query where nothing is neglected: cheap enough to be asked every second.
    """
    store = get_store(using)
    if not isinstance(store, GenericStore):
        raise StreamsError(f"gc needs a database store, not {store.vendor}")
    sweep = _Sweep(store, STALE, COMPLETED, BATCH_SIZE, False, None)
    sweep.settle()
    return sweep.summary.settled


@dataclass(slots=True)
class _Sweep:
    store: GenericStore
    stale: float
    completed: float
    batch_size: int
    dry_run: bool
    progress: Callable[[Summary], None] | None
    summary: Summary = field(default_factory=Summary)

    @property
    def _has_turns(self) -> bool:
        return self.store.alias == conf.get().DATABASE

    def end_turns(self) -> None:
        """End turns that nobody recovers; their partial replies become messages."""
        if not self._has_turns:
            return
        find = partial(recovery.find_stale, self.stale, self.batch_size)
        if self.dry_run:
            self.summary.found += len(persist(self.store, find))
        elif persist(self.store, find):
            end = async_to_sync(recovery.end_stale)
            ended = end(self.stale, limit=self.batch_size)
            self.summary.found += ended
            self.summary.settled += ended

    def settle(self) -> None:
        grace = conf.get().CANCEL_GRACE

        def find(after: int) -> list[sweeping.Neglected]:
            return sweeping.find_neglected(
                self.store,
                stale=self.stale,
                grace=grace,
                after=after,
                limit=self.batch_size,
            )

        for stream in self._all(find):
            writes = partial(recovery.writes, stream.stream_id)
            if self._has_turns and persist(self.store, writes):
                # Its turn's business: it may be continued yet.
                continue
            self.summary.found += 1
            if not self.dry_run and self._settle(stream, grace):
                self.summary.settled += 1

    def delete(self) -> None:
        def find(after: int) -> list[sweeping.Old]:
            return sweeping.find_old(
                self.store,
                completed=self.completed,
                after=after,
                limit=self.batch_size,
            )

        for stream in self._all(find):
            self.summary.found += 1
            size = persist(self.store, partial(sweeping.size, self.store, stream.pk))
            if self.dry_run or self._delete(stream):
                self.summary.bytes += size

    def merge(self) -> None:
        quiet = conf.get().ROLLUP_AFTER

        def find(after: int) -> list[sweeping.Scattered]:
            return sweeping.find_scattered(
                self.store, quiet=quiet, after=after, limit=self.batch_size
            )

        for stream in self._all(find):
            merge = partial(self.store.rollup, stream.pk, None, stream.below)
            try:
                self.summary.merged += persist(self.store, merge)
            except StreamUnavailableError as error:
                # Somebody holds the stream. It is whole as it is, and others wait.
                logger.info("blocks of row %d not merged: %s", stream.pk, error)

    def trim(self) -> None:
        if not self._has_turns:
            return
        age, last = conf.get().EVENT_AGE, 0
        find = partial(trimming.old_events, age, limit=self.batch_size)
        while found := persist(self.store, partial(find, after=last)):
            delete = partial(trimming.delete_events, found)
            self.summary.events += persist(self.store, delete)
            last = found[-1]

    def _all(self, find: Callable[[int], list[S]]) -> Iterator[S]:
        """Every row that *find* gives after an id, a batch at a time."""
        last = 0
        while batch := persist(self.store, partial(find, last)):
            yield from batch
            last = batch[-1].pk
            if self.progress is not None:
                self.progress(self.summary)

    def _settle(self, stream: sweeping.Neglected, grace: float) -> bool:
        done = persist(
            self.store,
            lambda: sweeping.settle_neglected(
                self.store, stream, stale=self.stale, grace=grace
            ),
        )
        if done:
            get_waker().wake(stream.key)
            stream_settled.send(
                Streams,
                stream_id=stream.stream_id,
                state=StreamState.ERRORED,
                error=stream.reason,
            )
        return done

    def _delete(self, stream: sweeping.Old) -> bool:
        done = persist(self.store, lambda: sweeping.delete_old(self.store, stream.pk))
        if done:
            self.summary.deleted += 1
            get_waker().wake(stream.key)
            stream_deleted.send(Streams, stream_id=stream.stream_id)
        return done
