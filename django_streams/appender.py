"""The writing end of one log: where the next chunk goes, and what became of
the last one.

Synchronous, on whatever thread calls; the doors are the writer's.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from . import codec, conf, ids
from .commit import (
    Afterwards,
    Told,
    get_committer,
    outcome,
    store_entry,
    store_entry_again,
)
from .exceptions import StreamCancelledError, StreamUnavailableError
from .feed import get_hub
from .line import Line, Place
from .signals import stream_deleted, stream_settled
from .store.base import Append, Opened, Settle, StreamStore
from .store.retry import once_more, persist
from .types import StreamState
from .wake.base import Waker

logger = logging.getLogger("django_streams.writer")

Commit = Callable[[], object]


class _CommitRaised(Exception):
    """Carries what the caller's commit raised past the retry."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a stream is to be settled.

    Raises ``TypeError`` for what no settlement can take.
    """

    state: StreamState
    error: str | None
    commit: Commit | None
    discard: bool

    def __post_init__(self) -> None:
        if self.error is not None and not isinstance(self.error, str):
            raise TypeError(
                f"the reason must be a str or None, not {type(self.error).__name__}; "
                "pass str(reason) if readers may see it"
            )
        if self.commit is not None and inspect.iscoroutinefunction(self.commit):
            raise TypeError(
                "commit must be a synchronous callable, for it runs inside the "
                "transaction that settles the stream; await your work before settling"
            )


class Appender:
    """All state that writes depend on; one write at a time changes it."""

    def __init__(
        self,
        store: StreamStore,
        waker: Waker,
        stream_id: str,
        opened: Opened,
        lease: float | None,
        renews: bool,
        sender: type,
    ) -> None:
        self.store = store
        self.stream_id = stream_id
        self.key = ids.stream_key(stream_id)
        self.pk = opened.pk
        self.epoch = opened.epoch
        self._cursor = opened.cursor
        self._committed: int | None = None
        """The cursor before the caller's transaction, until that commits."""
        self.cancelled = opened.cancelled
        self.cancel_callbacks: list[Callable[[], object]] = []
        self.lease = lease
        self.renews = renews
        """Whether the process renews the lease: async handles, and after a push."""
        self.renewed = -math.inf
        """When, or shortly before, an append last extended the lease; monotonic."""
        self._began = 0.0
        self._waker = waker
        self._sender = sender
        self._token = ids.new_token()
        self._unclear: Append | None = None
        self._line = Line()
        self._flying: Append | None = None
        self._newest = 0
        """Seq of the first chunk of the last write."""
        self.hurry = threading.Event()
        """Set when no write is to be tried again."""
        self._small_bytes = 0
        self._rolling: Future[None] | None = None

    @property
    def cursor(self) -> int:
        """The next seq; after a rollback the one from before the transaction."""
        if self._committed is not None and not self.store.in_atomic():
            # Its commit would have confirmed the newer one. Or the answer to it
            # was lost: then what it stored stands at this very seq, and must not
            # be taken for what this handle writes next.
            self._cursor = self._committed
            self._committed = None
            self._token = ids.new_token()
        return self._cursor

    def _confirm(self, cursor: int) -> None:
        self._committed = None
        if self._flying is None:
            self._cursor = cursor

    # For the keeper

    @property
    def alias(self) -> str:
        return self.store.alias

    @property
    def keeps(self) -> bool:
        """Whether a background thread can look after this log."""
        return self.store.background

    def renew_once(self, *, patient: bool = True) -> None:
        """Extend the lease, and learn whether the producer must stop."""
        if self.store.renew(self.pk, self.stream_id, self.epoch, patient=patient):
            self.note_cancelled()

    def keep_alive(self) -> None:
        """The same in the background, where nothing may wait, for a retry or for
        a row that a long transaction holds."""
        once_more(self.store, partial(self.renew_once, patient=False))

    def ask_cancelled(self, pks: Sequence[int]) -> set[int]:
        """Which of these streams of the same database must stop."""
        return once_more(self.store, lambda: self.store.cancel_requested(pks))

    def note_cancelled(self) -> None:
        """Somebody asked the producer to stop; tell who wants to hear it, once."""
        if not self.cancelled:
            self.cancelled = True
            for tell in self.cancel_callbacks:
                tell()

    # Writing

    def start(self, texts: Sequence[str], told: Told) -> Place:
        """Store *texts* in the background, together with what others store.

        *told* gets the first one's seq, or what went wrong, on another thread;
        not if the place is dropped before its turn. Never blocks.
        """
        return self._line.join(partial(self._begin, texts, told))

    def _begin(self, texts: Sequence[str], told: Told) -> None:
        # Called by whoever ended the turn before, perhaps the committer or an
        # event loop: nothing here may wait.
        if self._unclear is not None or not texts:
            work = partial(self._write_now, texts)
            self.store.submit(partial(self._work, work, told), waits=True)
            return
        self._began = time.monotonic()
        self._flying = entry = self._entry(texts)
        get_committer(self.store).submit(
            entry, lambda result: self._landed(entry, result, told)
        )

    def _work(self, work: Callable[[], int], told: Told) -> None:
        with self._line.inside():
            result = outcome(work)
        if (afterwards := told(result)) is not None:
            afterwards()

    def _landed(
        self, entry: Append, result: int | Exception, told: Told
    ) -> Afterwards | None:
        if isinstance(result, int):
            # Committed already: there is no transaction to wait for.
            self.renewed = self._began
            self._stored(entry, result, lambda work: work(), self._show)
        elif isinstance(result, StreamUnavailableError):
            self._unclear = entry
        elif isinstance(result, StreamCancelledError):
            self.note_cancelled()
        self._flying = None
        self._line.leave()
        return told(result)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Have the turn on this thread, or help along what has it."""
        if (flying := self._flying) is not None and self.store.in_atomic():
            # It may be waiting for a lock that the caller's transaction holds.
            # So it is stored here: once that commits it finds itself by its
            # token, and after a rollback it is stored as if nothing had been.
            self._attempt(flying, again=True)
            yield
        else:
            with self._line.hold():
                yield

    def write(self, texts: Sequence[str]) -> int:
        """Store *texts* together; the first one's seq."""
        with self._turn():
            return self._write_now(texts)

    def _write_now(self, texts: Sequence[str]) -> int:
        if not texts:
            return self.cursor
        if self._unclear is None:
            return self._attempt(self._entry(texts), again=False)
        # The last write ended without an answer. The same texts are its retry,
        # and find out; others must know first where to begin, and get a new
        # token: the lost write may still arrive, at the very seq that is
        # theirs, and must not be taken for them.
        lost, self._unclear = self._unclear, None
        if tuple(texts[: len(lost.texts)]) == lost.texts:
            seq = self._attempt(lost, again=True)
            self._write_now(texts[len(lost.texts) :])
            return seq
        self._give_up(lost)
        return self._attempt(self._entry(texts), again=False)

    def give_up(self) -> None:
        """Find out what became of a write that nobody repeats."""
        with self._turn():
            lost, self._unclear = self._unclear, None
            if lost is not None:
                self._give_up(lost)

    def _give_up(self, lost: Append) -> None:
        try:
            if persist(self.store, lambda: self.store.appended(lost)):
                self._stored(lost, lost.expected)
        except StreamUnavailableError:
            self._unclear = lost
            raise
        self._token = ids.new_token()

    def _entry(self, texts: Sequence[str]) -> Append:
        return Append(
            self.pk,
            self.stream_id,
            self.epoch,
            self.cursor,
            self._token,
            tuple(texts),
            hurry=self.hurry,
        )

    def _attempt(self, entry: Append, *, again: bool) -> int:
        store = store_entry_again if again else store_entry
        try:
            seq = store(self.store, entry)
        except StreamUnavailableError:
            # Inside a transaction the outcome is clear: it is lost as a whole.
            if not self.store.in_atomic():
                self._unclear = entry
            raise
        except StreamCancelledError:
            self.note_cancelled()
            raise
        self._stored(entry, seq)
        return seq

    def _stored(
        self,
        entry: Append,
        seq: int,
        on_commit: Callable[[Callable[[], None]], None] | None = None,
        show: Callable[[int, Sequence[str]], None] | None = None,
    ) -> None:
        if on_commit is None:
            on_commit = self.store.on_commit
            if self.store.in_atomic():
                if self._committed is None:
                    self._committed = seq
                # Each write confirms itself: a savepoint that is rolled back
                # takes only its own with it.
                on_commit(partial(self._confirm, seq + len(entry.texts)))
        self._newest = seq
        end = seq + len(entry.texts)
        if entry is self._flying:
            # It may land behind what a transaction stored after it.
            self._cursor = max(self._cursor, end)
            if self._committed is not None:
                self._committed = max(self._committed, end)
        else:
            self._cursor = end
        on_commit(self._wake if show is None else partial(show, seq, entry.texts))
        self._small_bytes += sum(map(len, entry.texts))
        if self._small_bytes >= conf.get().BLOCK_BYTES:
            self._small_bytes = 0
            on_commit(self._rollup_in_background)

    def _show(self, seq: int, texts: Sequence[str]) -> None:
        """Hand what is committed to this process's readers, and wake the others."""
        feed = get_hub().follows(self.alias, self.pk)
        if feed is not None and feed.hand(seq, texts):
            # They would fetch what they have.
            with feed.quiet():
                self._wake()
        else:
            self._wake()

    def _wake(self) -> None:
        self._waker.wake(self.key)

    # Blocks below this handle's own cursor are ones it knows to be stored, so
    # merging them takes no token from a retry that still looks for it.

    def _rollup(self, below: int) -> None:
        try:
            self.store.rollup(self.pk, self._token, below)
        except Exception as error:
            # The log is whole without it, and gc merges what is left small.
            logger.info("blocks of %r not merged: %s", self.stream_id, error)
            self.store.reset()

    def _rollup_in_background(self) -> None:
        if self._rolling is None or self._rolling.done():
            # Never the last block of a live stream: it is the one that a retry
            # of somebody's may still have to find by its token.
            work = partial(self._rollup, self._newest)
            self._rolling = self.store.submit(work, waits=True)

    def settle(self, ending: Ending) -> bool:
        """Settle once; whether this call did. See :meth:`StreamWriter.close`."""
        with self._turn():
            return self._settle_now(ending)

    def start_settle(self, ending: Ending, told: Told) -> Place:
        """The same in the background, when its turn comes; as :meth:`start`."""
        work = partial(self._work, partial(self._settle_now, ending), told)

        def begin() -> None:
            self.store.submit(work, waits=True)

        return self._line.join(begin)

    def _settle_now(self, ending: Ending) -> bool:
        request = Settle(
            pk=self.pk,
            stream_id=self.stream_id,
            epoch=self.epoch,
            token=ids.new_token(),
            state=ending.state,
            error=None if ending.error is None else codec.plain_text(ending.error),
            commit=None
            if ending.commit is None
            else _guarded(ending.commit, self.store),
            discard=ending.discard,
        )
        try:
            first = persist(
                self.store,
                lambda: self.store.settle(request),
                lambda: self.store.settle_again(request),
                stream_id=self.stream_id,
            )
        except _CommitRaised as raised:
            assert raised.__cause__ is not None
            raise raised.__cause__ from None
        if first:
            self.store.on_commit(lambda: self._settled(request))
        return first

    def _settled(self, request: Settle) -> None:
        self._wake()
        stream_settled.send(
            self._sender,
            stream_id=self.stream_id,
            state=request.state,
            error=request.error,
        )
        if request.discard:
            get_hub().gone(self.alias, self.key)
            stream_deleted.send(self._sender, stream_id=self.stream_id)
        else:
            self._rollup(self.cursor)


def _guarded(commit: Commit, store: StreamStore) -> Commit:
    """Tells the caller's failure from the database's: only the latter retries, also
    where it meets a statement of the caller's."""

    def run() -> None:
        try:
            result = commit()
            if inspect.iscoroutine(result):
                result.close()
                raise TypeError("commit returned a coroutine; it must be synchronous")
        except Exception as error:
            if store.transient(error):
                raise
            raise _CommitRaised from error

    return run
