"""A store in this process's memory: the public test double.

It passes the contract suite of the databases. What it cannot have is another
process; transactions it has of its own, so that ``commit=`` rolls back.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

from .. import codec
from ..exceptions import StreamCancelledError, StreamLiveError, StreamsError
from ..types import Lease, StreamState, StreamStatus
from .base import (
    INTERRUPTED,
    Append,
    Head,
    Opened,
    OpenRequest,
    Page,
    Settle,
    Stored,
    StreamStore,
    closed,
    conflict,
    deleted,
    fenced,
)

R = TypeVar("R")


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class _Stream:
    pk: int
    request: OpenRequest
    metadata: str | None
    created_at: datetime
    updated_at: datetime
    lease: float | None
    on_lapse: str
    state: StreamState = StreamState.STREAMING
    error: str | None = None
    epoch: int = 1
    lease_expires_at: datetime | None = None
    cancelled: bool = False
    settle_token: int | None = None
    closed_at: datetime | None = None
    texts: list[str] = field(default_factory=list)
    writers: dict[int, int] = field(default_factory=dict)
    """Token by the seq at which its entry begins."""

    def touch(self, now: datetime) -> None:
        if self.lease is not None:
            self.lease_expires_at = now + timedelta(seconds=self.lease)

    def lapsed_for(self, now: datetime, leases: int) -> bool:
        return (
            self.state is StreamState.STREAMING
            and self.lease is not None
            and self.lease_expires_at is not None
            and now > self.lease_expires_at + leases * timedelta(seconds=self.lease)
        )


class MemoryStore(StreamStore):
    """Streams of one process: ``Streams(using=MemoryStore())``.

    *clock* returns aware datetimes; give one to let leases lapse in a test.
    """

    vendor: ClassVar[str] = "memory"
    inline = True

    def __init__(
        self, *, clock: Callable[[], datetime] = _utc_now, alias: str = "memory"
    ) -> None:
        super().__init__(alias)
        self._clock = clock
        self._lock = threading.RLock()
        self._by_pk: dict[int, _Stream] = {}
        self._by_key: dict[str, int] = {}
        self._pks = itertools.count(1)

    # Doors

    async def admit(self) -> None:
        """There is no transaction that a call could be hidden from."""

    async def run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return work(*args, **kwargs)

    async def run_waiting(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return work(*args, **kwargs)

    def submit(self, work: Callable[[], R], *, waits: bool = False) -> Future[R]:
        future: Future[R] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future

    def in_atomic(self) -> bool:
        return False

    @contextmanager
    def atomic(self) -> Iterator[None]:
        with self._lock:
            before = copy.deepcopy(self._by_pk), dict(self._by_key)
            try:
                yield
            except BaseException:
                self._by_pk, self._by_key = before
                raise

    def on_commit(self, work: Callable[[], object]) -> None:
        work()

    def transient(self, error: Exception) -> bool:
        return False

    def away(self, error: Exception) -> bool:
        return False

    def explain(self, error: Exception) -> StreamsError | None:
        return None

    def reset(self) -> None:
        """There is no connection to drop."""

    # Writing

    def open(self, request: OpenRequest) -> Opened:
        with self._lock:
            now = self._clock()
            pk = self._by_key.get(request.key)
            if pk is None:
                pk = next(self._pks)
                stream = _Stream(
                    pk=pk,
                    request=request,
                    metadata=request.metadata(),
                    created_at=now,
                    updated_at=now,
                    lease=request.lease,
                    on_lapse=request.on_lapse,
                )
                stream.touch(now)
                self._by_pk[pk] = stream
                self._by_key[request.key] = pk
                return Opened(pk, 0, 1, created=True, cancelled=False)
            stream = self._by_pk[pk]
            if stream.state.settled:
                raise closed(request.stream_id, stream.state)
            tag = stream.request.tag
            if request.tag is not None and request.tag != tag:
                raise conflict(request.stream_id, tag, request.tag)
            if request.takeover or request.lease is not None:
                stream.epoch += request.takeover
                stream.lease, stream.on_lapse = request.lease, request.on_lapse
                stream.lease_expires_at = None
                stream.touch(now)
            return Opened(pk, len(stream.texts), stream.epoch, False, stream.cancelled)

    def append(self, entry: Append) -> int:
        with self._lock:
            stream = self._writable(entry.pk, entry.stream_id, entry.epoch)
            if stream.cancelled:
                raise StreamCancelledError(
                    f'the producer of stream "{entry.stream_id}" was asked to stop; '
                    "settle the stream and return",
                    stream_id=entry.stream_id,
                )
            at = len(stream.texts)
            stream.texts += entry.texts
            stream.writers[at] = entry.token
            stream.updated_at = self._clock()
            stream.touch(stream.updated_at)
            return at

    def append_batch(self, entries: Sequence[Append]) -> list[Stored]:
        results: list[Stored] = []
        for entry in entries:
            try:
                results.append(self.append(entry))
            except StreamsError as refused:
                results.append(refused)
        return results

    def append_again(self, entry: Append) -> int:
        with self._lock:
            return entry.expected if self.appended(entry) else self.append(entry)

    def appended(self, entry: Append) -> bool:
        stream = self._by_pk.get(entry.pk)
        return stream is not None and stream.writers.get(entry.expected) == entry.token

    def settle(self, request: Settle) -> bool:
        with self.atomic():
            stream = self._by_pk.get(request.pk)
            if stream is None:
                return False
            if stream.epoch != request.epoch:
                raise fenced(request.stream_id, request.epoch, stream.epoch)
            if stream.state.settled:
                return False
            self._end(stream, request.state, request.error)
            stream.settle_token = request.token
            if request.commit is not None:
                request.commit()
            if request.discard:
                self._drop(stream)
            return True

    def settle_again(self, request: Settle) -> bool:
        return self.settle(request)

    def settle_lapsed(self, pk: int, epoch: int) -> bool:
        with self._lock:
            stream = self._by_pk.get(pk)
            if stream is None or stream.epoch != epoch or not self._overdue(stream):
                return False
            self._end(stream, StreamState.ERRORED, INTERRUPTED)
            return True

    def renew(
        self, pk: int, stream_id: str, epoch: int, *, patient: bool = True
    ) -> bool:
        with self._lock:
            stream = self._writable(pk, stream_id, epoch)
            stream.touch(self._clock())
            return stream.cancelled

    def cancel_requested(self, pks: Sequence[int]) -> set[int]:
        with self._lock:
            return {pk for pk in pks if pk in self._by_pk and self._by_pk[pk].cancelled}

    def request_cancel(self, key: str) -> bool:
        with self._lock:
            stream = self._find(key)
            if stream is None or stream.state.settled:
                return False
            stream.cancelled = True
            return True

    def delete(self, key: str, stream_id: str) -> bool:
        with self._lock:
            stream = self._find(key)
            if stream is None:
                return False
            if not stream.state.settled:
                raise StreamLiveError(
                    f'Cannot delete live stream "{stream_id}"; '
                    "close() or error() it first",
                    stream_id=stream_id,
                )
            self._drop(stream)
            return True

    def rollup(self, pk: int, token: int | None, below: int) -> int:
        return 0

    # Reading

    def head(self, key: str) -> Head | None:
        with self._lock:
            stream = self._find(key)
            return None if stream is None else self._head(stream)

    def heads(self, pks: Sequence[int]) -> dict[int, Head]:
        with self._lock:
            return {pk: self._head(self._by_pk[pk]) for pk in pks if pk in self._by_pk}

    def page(self, pk: int, start: int, max_bytes: int) -> Page | None:
        with self._lock:
            stream = self._by_pk.get(pk)
            if stream is None:
                return None
            texts: list[str] = []
            size = 0
            for text in itertools.islice(stream.texts, start, None):
                if texts and size >= max_bytes:
                    break
                texts.append(text)
                size += len(text)
            return Page(self._head(stream), texts)

    def status(self, key: str) -> StreamStatus | None:
        with self._lock:
            stream = self._find(key)
            return None if stream is None else self._status(stream)

    def list(
        self, states: Sequence[StreamState], tag: str | None, limit: int
    ) -> Sequence[StreamStatus]:
        with self._lock:
            found = [
                stream
                for stream in self._by_pk.values()
                if (not states or stream.state in states)
                and (tag is None or stream.request.tag == tag)
            ]
            found.sort(key=lambda s: (s.created_at, s.pk), reverse=True)
            return [self._status(stream) for stream in found[:limit]]

    def owner(self, key: str) -> str | None:
        with self._lock:
            stream = self._find(key)
            return None if stream is None else stream.request.owner_key

    # Rows

    def _find(self, key: str) -> _Stream | None:
        pk = self._by_key.get(key)
        return None if pk is None else self._by_pk[pk]

    def _writable(self, pk: int, stream_id: str, epoch: int) -> _Stream:
        stream = self._by_pk.get(pk)
        if stream is None:
            raise deleted(stream_id)
        if stream.epoch != epoch:
            raise fenced(stream_id, epoch, stream.epoch)
        if stream.state.settled:
            raise closed(stream_id, stream.state)
        return stream

    def _end(self, stream: _Stream, state: StreamState, error: str | None) -> None:
        stream.state, stream.error = state, error
        stream.closed_at = stream.updated_at = self._clock()

    def _drop(self, stream: _Stream) -> None:
        del self._by_pk[stream.pk]
        del self._by_key[stream.request.key]

    def _overdue(self, stream: _Stream) -> bool:
        return stream.on_lapse == "settle" and stream.lapsed_for(self._clock(), 1)

    def _head(self, stream: _Stream) -> Head:
        return Head(
            stream.pk,
            stream.state,
            len(stream.texts),
            stream.epoch,
            self._overdue(stream),
        )

    def _status(self, stream: _Stream) -> StreamStatus:
        lease: Lease | None = None
        if stream.lease is not None and not stream.state.settled:
            lease = "lapsed" if stream.lapsed_for(self._clock(), 0) else "live"
        metadata = stream.metadata
        return StreamStatus(
            stream_id=stream.request.stream_id,
            state=stream.state,
            cursor=len(stream.texts),
            tag=stream.request.tag,
            metadata=None if metadata is None else codec.decode(metadata),
            error=stream.error,
            lease=lease,
            created_at=stream.created_at,
            updated_at=stream.updated_at,
            closed_at=stream.closed_at,
        )
