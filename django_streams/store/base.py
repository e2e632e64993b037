"""What a store must do. One contract suite runs over all of them.

All methods are synchronous. They raise our own errors for what the spec
refuses, and the driver's errors for what went wrong underneath; whether such
an error may be retried is :meth:`StreamStore.transient`'s to say.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ..exceptions import (
    StreamClosedError,
    StreamConflictError,
    StreamFencedError,
    StreamsError,
)
from ..types import OnLapse, StreamState, StreamStatus

R = TypeVar("R")

INTERRUPTED = "interrupted"
"""Reason of a stream whose producer vanished."""

CANCELLED = "cancelled"
"""Reason of a stream whose producer was asked to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    stream_id: str
    key: str
    tag: str | None
    tag_key: str
    metadata: Callable[[], str | None]
    """Its JSON text; only asked (and so only checked) when the row is made."""
    owner_key: str
    lease: float | None
    on_lapse: OnLapse
    takeover: bool


@dataclass(frozen=True, slots=True)
class Opened:
    pk: int
    cursor: int
    epoch: int
    created: bool
    cancelled: bool


@dataclass(slots=True)
class Append:
    """Chunks to be stored together, or not at all.

    ``expected`` is where the last attempt put them or would have: an attempt
    that adopts another position says so here before it writes, because that is
    where a retry after an unclear failure must look.
    """

    pk: int
    stream_id: str
    epoch: int
    expected: int
    token: int
    texts: tuple[str, ...]
    maybe_stored: bool = False
    """An earlier attempt may have succeeded: look for its block first.

    Never looked for otherwise: a handle whose cursor went back would take a
    block of its own, stored long ago, for this entry.
    """
    hurry: threading.Event | None = None
    """Once it is set the entry is not tried again."""


Stored = int | StreamsError | None
"""What became of one entry of a batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settle:
    pk: int
    stream_id: str
    epoch: int
    token: int
    state: StreamState
    error: str | None
    commit: Callable[[], object] | None = None
    discard: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """A stream's row as a follower needs it."""

    pk: int
    state: StreamState
    cursor: int
    epoch: int
    lapsed: bool
    """The lease ended more than one lease ago, and followers may settle it."""


@dataclass(frozen=True, slots=True)
class Page:
    """Texts from the asked position on, and the head of the same snapshot."""

    head: Head
    texts: Sequence[str]


class StreamStore(ABC):
    """Rows and blocks of one database. Safe to share between threads."""

    vendor: ClassVar[str]

    inline: bool = False
    """Writes happen on the caller's thread, whatever door they came through."""

    background: bool = True
    """Another thread of this process can work on the same rows."""

    def __init__(self, alias: str) -> None:
        self.alias = alias

    # Doors

    @abstractmethod
    async def admit(self) -> None:
        """Refuse a call that the caller's transaction would be hidden from."""

    @abstractmethod
    async def run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Await *work* off the event loop. Cancelled: it may still complete."""

    @abstractmethod
    async def run_waiting(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """As :meth:`run`, for what may wait for a row that somebody holds.

        However many of them wait, what only reads goes on.
        """

    @abstractmethod
    def submit(self, work: Callable[[], R], *, waits: bool = False) -> Future[R]:
        """Run *work*, which may wait for a held row or not, in the background."""

    @abstractmethod
    def in_atomic(self) -> bool:
        """Whether the caller has a transaction open on this database."""

    @abstractmethod
    def atomic(self) -> AbstractContextManager[None]:
        """A transaction, or a savepoint inside the caller's."""

    @abstractmethod
    def on_commit(self, work: Callable[[], object]) -> None:
        """Run *work* once the caller's transaction commits, or at once."""

    @abstractmethod
    def transient(self, error: Exception) -> bool:
        """Whether trying again, on a new connection, may help."""

    @abstractmethod
    def away(self, error: Exception) -> bool:
        """Whether *error* says that nobody can write to the database now; not that
        this call lost to others."""

    @abstractmethod
    def explain(self, error: Exception) -> StreamsError | None:
        """Our error for a failure inside the caller's transaction, if we know."""

    @abstractmethod
    def reset(self) -> None:
        """Drop this thread's connection, so that the next call makes a new one."""

    # Writing

    @abstractmethod
    def open(self, request: OpenRequest) -> Opened: ...

    @abstractmethod
    def append(self, entry: Append) -> int:
        """Store the chunks; the first one's seq.

        A stale ``expected`` adopts the stored cursor. Raises closed, fenced or
        cancelled.
        """

    @abstractmethod
    def append_batch(self, entries: Sequence[Append]) -> list[Stored]:
        """Store entries of different streams in one transaction.

        For each the first chunk's seq, or why it was refused, or None when
        somebody else had its row locked: that entry is not stored, and holds
        up nobody.
        """

    @abstractmethod
    def append_again(self, entry: Append) -> int:
        """The same after an unclear failure: stored once, whatever happened."""

    @abstractmethod
    def appended(self, entry: Append) -> bool:
        """Whether an entry of unclear fate is stored."""

    @abstractmethod
    def settle(self, request: Settle) -> bool:
        """Settle, run ``commit`` and delete in one transaction; who was first."""

    @abstractmethod
    def settle_again(self, request: Settle) -> bool:
        """The same after an unclear failure; ``commit`` took effect once."""

    @abstractmethod
    def settle_lapsed(self, pk: int, epoch: int) -> bool:
        """Settle as interrupted if the lease is still lapsed for one lease."""

    @abstractmethod
    def renew(
        self, pk: int, stream_id: str, epoch: int, *, patient: bool = True
    ) -> bool:
        """Extend the lease; whether a cancel was requested.

        Not *patient*: where somebody holds the row nothing is done, and False
        returned, for who renews the leases of many streams waits for none.
        """

    @abstractmethod
    def cancel_requested(self, pks: Sequence[int]) -> set[int]:
        """Which of these streams somebody asked to stop."""

    @abstractmethod
    def request_cancel(self, key: str) -> bool: ...

    @abstractmethod
    def delete(self, key: str, stream_id: str) -> bool: ...

    @abstractmethod
    def rollup(self, pk: int, token: int | None, below: int) -> int:
        """Merge small neighbouring blocks below a seq; how many rows that saved.

        With a *token*, that writer's blocks (and merged ones) only: it alone
        knows that none of them is still looked for by a retry. With None every
        block, for streams that nobody has written to for ten minutes.
        """

    # Reading

    @abstractmethod
    def head(self, key: str) -> Head | None: ...

    @abstractmethod
    def heads(self, pks: Sequence[int]) -> dict[int, Head]:
        """The heads of several rows at once; a deleted one is left out."""

    @abstractmethod
    def page(self, pk: int, start: int, max_bytes: int) -> Page | None:
        """What is stored from *start* on; None when the row is gone."""

    @abstractmethod
    def status(self, key: str) -> StreamStatus | None: ...

    @abstractmethod
    def owner(self, key: str) -> str | None: ...

    @abstractmethod
    def list(
        self, states: Sequence[StreamState], tag: str | None, limit: int
    ) -> Sequence[StreamStatus]: ...


# The refusals, worded once for all stores.


def closed(stream_id: str, state: str) -> StreamClosedError:
    return StreamClosedError(
        f'Stream "{stream_id}" is closed: already settled as {state}; '
        "open another id for a new attempt",
        stream_id=stream_id,
    )


def deleted(stream_id: str) -> StreamClosedError:
    return StreamClosedError(
        f'Stream "{stream_id}" is closed: it was deleted',
        stream_id=stream_id,
        code="deleted",
    )


def fenced(stream_id: str, mine: int, stored: int) -> StreamFencedError:
    return StreamFencedError(
        f'Stream "{stream_id}" was taken over: this writer has epoch {mine}, '
        f"the stream has {stored}; stop producing",
        stream_id=stream_id,
    )


def conflict(stream_id: str, stored: str | None, asked: str) -> StreamConflictError:
    return StreamConflictError(
        f'Stream "{stream_id}" is already open with tag {_quoted(stored)}; '
        f"refusing reopen with tag {_quoted(asked)}",
        stream_id=stream_id,
    )


def _quoted(tag: str | None) -> str:
    return "null" if tag is None else f'"{tag}"'
