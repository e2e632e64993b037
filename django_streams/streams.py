"""The facade: everything a project does with streams begins here."""

from __future__ import annotations

import builtins
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from operator import index
from typing import Any, TypeVar

from . import codec, ids
from .feed import get_hub
from .keeper import CONTROL_KEY, get_keeper
from .pairs import async_door, sync_door
from .produce import check_producer, start_producer
from .reader import Follower, UpToDate
from .signals import stream_deleted, stream_opened
from .store import StreamStore, get_store
from .store.base import OpenRequest
from .store.retry import persist
from .types import Json, OnLapse, StreamChunk, StreamState, StreamStatus
from .wake import get_waker
from .wake.base import Waker
from .writer import StreamWriter

R = TypeVar("R")

MAX_LEASE = 366 * 86_400
"""Seconds; a lease is a sign of life, and every database can add a year."""


class Streams:
    """Ordered logs of JSON chunks in one database.

    *using* is a database alias, or a store such as
    :class:`~django_streams.testing.MemoryStore`. *max_chunk_bytes* limits the
    JSON text of a chunk and of metadata (1 MiB as in the original). *wake*
    replaces the process's waker.

    Cheap to construct; safe to share between threads and event loops. Sync
    methods raise :class:`StreamUsageError` on a running event loop; each has an
    async twin with the prefix ``a``.
    """

    def __init__(
        self,
        *,
        using: str | StreamStore = "default",
        max_chunk_bytes: int = codec.MAX_CHUNK_BYTES,
        wake: Waker | None = None,
    ) -> None:
        if max_chunk_bytes < 1:
            raise ValueError(f"max_chunk_bytes must be positive, not {max_chunk_bytes}")
        self._using = using
        self._max_chunk_bytes = max_chunk_bytes
        self._own_waker = wake

    def __repr__(self) -> str:
        return f"<Streams on {self.using!r}>"

    @property
    def using(self) -> str:
        """The database alias."""
        return self._using if isinstance(self._using, str) else self._using.alias

    # Writing

    @sync_door
    def open(
        self,
        stream_id: str,
        *,
        metadata: Mapping[str, Json] | None = None,
        tag: str | None = None,
        owner: str | None = None,
        lease: float | None = None,
        on_lapse: OnLapse = "settle",
        takeover: bool = False,
    ) -> StreamWriter:
        """A writer at the stream's stored cursor; creates the stream if unknown.

        *metadata* (a JSON object), *tag* (groups the streams of one operation)
        and *owner* (an owner key, for the access policy) are fixed when the
        stream is created and ignored after. *lease* is seconds for which the
        writer counts as alive without a sign of life; *on_lapse* says whether
        followers may settle the stream once that is over. *takeover* fences off
        every earlier writer.

        Raises :class:`StreamClosedError` if settled, :class:`StreamConflictError`
        if live under another tag, ``ValueError`` or ``TypeError`` for arguments.
        """
        return self._open(
            False, stream_id, metadata, tag, owner, lease, on_lapse, takeover
        )

    async def aopen(
        self,
        stream_id: str,
        *,
        metadata: Mapping[str, Json] | None = None,
        tag: str | None = None,
        owner: str | None = None,
        lease: float | None = None,
        on_lapse: OnLapse = "settle",
        takeover: bool = False,
    ) -> StreamWriter:
        """Async twin of :meth:`open`; the process renews the lease by itself.

        Cancelled: the stream may have been created; opening again is safe.
        """
        return await self._run_waiting(
            self._open,
            True,
            stream_id,
            metadata,
            tag,
            owner,
            lease,
            on_lapse,
            takeover,
        )

    @sync_door
    def produce(
        self,
        stream_id: str,
        chunks: Iterable[Json] | AsyncIterable[Json],
        *,
        metadata: Mapping[str, Json] | None = None,
        tag: str | None = None,
        owner: str | None = None,
        lease: float | None = 30.0,
        on_lapse: OnLapse = "settle",
        takeover: bool = False,
    ) -> StreamStatus:
        """Run a producer in the background and return at once.

        Everything *chunks* yields is pushed, then the stream is closed; an
        exception settles it as errored, a request to stop as ``cancelled``. It
        runs on a thread of this process (an async iterable on the process's own
        background loop), its lease renewed while the process lives.

        Raises as :meth:`open`; returns the status after opening.
        """
        check_producer(chunks)
        writer = self._open(
            True, stream_id, metadata, tag, owner, lease, on_lapse, takeover
        )
        start_producer(writer, chunks, on_this_loop=False)
        return self._required_status(stream_id)

    async def aproduce(
        self,
        stream_id: str,
        chunks: Iterable[Json] | AsyncIterable[Json],
        *,
        metadata: Mapping[str, Json] | None = None,
        tag: str | None = None,
        owner: str | None = None,
        lease: float | None = 30.0,
        on_lapse: OnLapse = "settle",
        takeover: bool = False,
    ) -> StreamStatus:
        """Async twin of :meth:`produce`; an async iterable runs on this loop.

        Cancelled: the stream may have been opened without a producer; its lease
        then lapses.
        """
        check_producer(chunks)
        writer = await self.aopen(
            stream_id,
            metadata=metadata,
            tag=tag,
            owner=owner,
            lease=lease,
            on_lapse=on_lapse,
            takeover=takeover,
        )
        start_producer(writer, chunks, on_this_loop=True)
        return await self._run(self._required_status, stream_id)

    # Reading

    def read(
        self,
        stream_id: str,
        *,
        start: int = 0,
        stop: threading.Event | None = None,
        timeout: float | None = None,
    ) -> Generator[StreamChunk, None, None]:
        """Replay from *start* (inclusive, negative is 0), then follow to the end.

        Ends when the stream is settled and drained, also when it is errored: ask
        :meth:`status`. Ends early once *stop* is set. Raises
        :class:`StreamNotFoundError` at the first step, ``TimeoutError`` after
        *timeout* seconds without news, and :class:`StreamClosedError` with code
        ``deleted`` when the stream is deleted under the reader.
        """
        follower = self.follower(stream_id, start=start)
        for batch in follower.batches("read", stop, timeout):
            yield from batch

    async def aread(
        self, stream_id: str, *, start: int = 0
    ) -> AsyncGenerator[StreamChunk, None]:
        """Async twin of :meth:`read`, which is stopped by closing or cancelling.

        Close it (``aclosing``) when you leave it early. Cancelled: nothing stays.
        """
        follower = self.follower(stream_id, start=start)
        async with aclosing(follower.abatches()) as batches:
            async for batch in batches:
                for chunk in batch:
                    yield chunk

    def read_batches(
        self,
        stream_id: str,
        *,
        start: int = 0,
        batch_size: int = 100,
        on_up_to_date: UpToDate | None = None,
        raw: bool = False,
    ) -> Generator[list[StreamChunk], None, None]:
        """The same in non-empty lists.

        Up to *batch_size* chunks during replay, everything since the last list
        while following. *on_up_to_date* runs once, the first time the reader has
        everything stored. With *raw* each ``chunk`` is its JSON text.
        """
        follower = self.follower(
            stream_id,
            start=start,
            batch_size=batch_size,
            on_up_to_date=on_up_to_date,
            raw=raw,
        )
        yield from follower.batches("read_batches", None, None)

    async def aread_batches(
        self,
        stream_id: str,
        *,
        start: int = 0,
        batch_size: int = 100,
        on_up_to_date: UpToDate | None = None,
        raw: bool = False,
    ) -> AsyncGenerator[builtins.list[StreamChunk], None]:
        """Async twin of :meth:`read_batches`. Cancelled: nothing stays."""
        follower = self.follower(
            stream_id,
            start=start,
            batch_size=batch_size,
            on_up_to_date=on_up_to_date,
            raw=raw,
        )
        async with aclosing(follower.abatches()) as batches:
            async for batch in batches:
                yield batch

    # Looking and tidying

    @sync_door
    def status(self, stream_id: str) -> StreamStatus | None:
        """The stream as it is now; None if unknown."""
        key = ids.stream_key(stream_id)
        return self._persist(lambda: self._store.status(key))

    astatus = async_door(status, cancelled="nothing changes.")

    @sync_door
    def list(
        self,
        *,
        state: StreamState | str | Iterable[StreamState | str] | None = None,
        tag: str | None = None,
        limit: int = 100,
    ) -> Sequence[StreamStatus]:
        """Streams, newest first; *state* is one or several, none means all."""
        if index(limit) < 0:
            raise ValueError(f"limit must not be negative, not {limit}")
        if tag is not None and not isinstance(tag, str):
            raise TypeError(f"tag must be a str, not {type(tag).__name__}")
        if state is None:
            states = []
        elif isinstance(state, str):
            states = [StreamState(state)]
        else:
            states = [StreamState(one) for one in state]
        return self._persist(lambda: self._store.list(states, tag, limit))

    alist = async_door(list, cancelled="nothing changes.")

    @sync_door
    def owner_of(self, stream_id: str) -> str | None:
        """The owner key, for an access policy; None if the stream is unknown."""
        key = ids.stream_key(stream_id)
        return self._persist(lambda: self._store.owner(key))

    aowner_of = async_door(owner_of, cancelled="nothing changes.")

    @sync_door
    def cancel(self, stream_id: str) -> bool:
        """Ask the producer to stop; True if the stream was live.

        Its appends then raise :class:`StreamCancelledError`; it settles the
        stream itself, or gc does after ``CANCEL_GRACE`` seconds.
        """
        key = ids.stream_key(stream_id)
        live = self._persist(lambda: self._store.request_cancel(key))
        if live:
            self._store.on_commit(lambda: self._tell_producers(key))
        return live

    acancel = async_door(cancel, cancelled="the request is made or not.", waits=True)

    @sync_door
    def delete(self, stream_id: str) -> bool:
        """Delete a settled stream and its blocks; False if unknown.

        Raises :class:`StreamLiveError` for a live one. Readers that are still
        attached are told.
        """
        key = ids.stream_key(stream_id)
        gone = self._persist(lambda: self._store.delete(key, stream_id))
        if gone:
            self._store.on_commit(lambda: self._deleted(key, stream_id))
        return gone

    adelete = async_door(delete, cancelled="it is deleted or not.", waits=True)

    # How it is done

    @property
    def _store(self) -> StreamStore:
        return get_store(self._using) if isinstance(self._using, str) else self._using

    @property
    def _waker(self) -> Waker:
        return self._own_waker or get_waker()

    def _run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> Awaitable[R]:
        return self._store.run(work, *args, **kwargs)

    def _run_waiting(
        self, work: Callable[..., R], *args: Any, **kwargs: Any
    ) -> Awaitable[R]:
        return self._store.run_waiting(work, *args, **kwargs)

    def _persist(self, work: Callable[[], R]) -> R:
        return persist(self._store, work)

    def _open(
        self,
        renews: bool,
        stream_id: str,
        metadata: Mapping[str, Json] | None,
        tag: str | None,
        owner: str | None,
        lease: float | None,
        on_lapse: OnLapse,
        takeover: bool,
    ) -> StreamWriter:
        request = self._request(
            stream_id, metadata, tag, owner, lease, on_lapse, takeover
        )
        store = self._store
        opened = persist(store, lambda: store.open(request), stream_id=stream_id)
        if opened.created:
            store.on_commit(lambda: stream_opened.send(Streams, stream_id=stream_id))
        return StreamWriter(
            store,
            self._waker,
            stream_id,
            opened,
            lease=lease,
            renews=renews,
            max_chunk_bytes=self._max_chunk_bytes,
            sender=Streams,
        )

    def _request(
        self,
        stream_id: str,
        metadata: Mapping[str, Json] | None,
        tag: str | None,
        owner: str | None,
        lease: float | None,
        on_lapse: OnLapse,
        takeover: bool,
    ) -> OpenRequest:
        ids.check_stream_id(stream_id)
        if tag is not None:
            ids.check_id(tag, "tag")
        if owner is not None and owner != "":
            ids.check_id(owner, "owner", ids.MAX_OWNER_LENGTH)
        if lease is not None and not 0 < lease <= MAX_LEASE:
            raise ValueError(
                f"lease must be a number of seconds above 0 and up to {MAX_LEASE} "
                f"(a year), not {lease}"
            )
        if on_lapse not in ("settle", "wait"):
            raise ValueError(f"on_lapse must be 'settle' or 'wait', not {on_lapse!r}")
        return OpenRequest(
            stream_id=stream_id,
            key=ids.stream_key(stream_id),
            tag=tag,
            tag_key=ids.tag_key(tag),
            metadata=lambda: self._metadata(stream_id, metadata),
            owner_key=owner or "",
            lease=None if lease is None else float(lease),
            on_lapse=on_lapse,
            takeover=takeover,
        )

    def _metadata(
        self, stream_id: str, metadata: Mapping[str, Json] | None
    ) -> str | None:
        if metadata is None:
            return None
        if not isinstance(metadata, dict):
            raise TypeError(f"metadata must be a dict, not {type(metadata).__name__}")
        return codec.encode(
            metadata,
            limit=self._max_chunk_bytes,
            what="metadata",
            stream_id=stream_id,
        )

    def follower(
        self,
        stream_id: str,
        *,
        start: int = 0,
        batch_size: int | None = 100,
        on_up_to_date: UpToDate | None = None,
        raw: bool = False,
    ) -> Follower:
        """One reader as an object, for transports that also wait for other things.

        The arguments are those of :meth:`read_batches`; *batch_size* None is a
        page at a time, as the store gives it. Does no I/O; it is used once, and
        :meth:`Follower.nudge` interrupts its waiting.
        """
        if batch_size is not None and index(batch_size) < 0:
            raise ValueError(f"batch_size must not be negative, not {batch_size}")
        return Follower(
            self._store,
            self._waker,
            stream_id,
            start=index(start),
            batch_size=batch_size,
            on_up_to_date=on_up_to_date,
            raw=raw,
        )

    def _required_status(self, stream_id: str) -> StreamStatus:
        status = self._persist(lambda: self._store.status(ids.stream_key(stream_id)))
        assert status is not None
        return status

    def _tell_producers(self, key: str) -> None:
        get_keeper().cancelled_here(self.using, key)
        self._waker.wake(key)
        self._waker.wake(CONTROL_KEY)

    def _deleted(self, key: str, stream_id: str) -> None:
        get_hub().gone(self.using, key)
        self._waker.wake(key)
        stream_deleted.send(Streams, stream_id=stream_id)
