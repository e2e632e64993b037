"""The producer's handle on one stream."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from . import codec, conf
from .appender import Appender, Commit, Ending
from .commit import Told
from .delivery import delivery_to
from .exceptions import StreamCancelledError, StreamClosedError, StreamFencedError
from .failures import public_reason
from .keeper import get_keeper
from .line import Place
from .pairs import async_door, refuse_running_loop, sync_door
from .push import PushBuffer
from .store.base import CANCELLED, INTERRUPTED, Opened, StreamStore
from .store.retry import persist
from .types import Json, StreamState
from .wake.base import Waker

R = TypeVar("R")


class StreamWriter:
    """Appends to one stream and settles it; made by :meth:`Streams.open`.

    Calls on one handle take effect one after the other, in the order in which
    they were made; another producer wants a handle of its own. Used as a
    context manager it closes on a normal exit and settles as errored on an
    exception. An ``asyncio.CancelledError`` leaves a leased stream live:
    whoever takes it over goes on at the cursor.

    Appends raise :class:`StreamClosedError`, :class:`StreamFencedError`,
    :class:`StreamCancelledError`, :class:`StreamSerializationError` and
    :class:`StreamUnavailableError`. A failed append consumes no seq.
    """

    def __init__(
        self,
        store: StreamStore,
        waker: Waker,
        stream_id: str,
        opened: Opened,
        *,
        lease: float | None,
        renews: bool,
        max_chunk_bytes: int,
        sender: type,
    ) -> None:
        self._log = Appender(store, waker, stream_id, opened, lease, renews, sender)
        self._store = store
        self._waker = waker
        self._max_chunk_bytes = max_chunk_bytes
        self._pushes = PushBuffer(conf.get().PUSH_CHUNKS)
        self._order: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Lock
        ] = weakref.WeakKeyDictionary()
        get_keeper().add(self._log, waker)

    def __repr__(self) -> str:
        return f"<StreamWriter {self.stream_id!r} at {self.cursor}>"

    @property
    def stream_id(self) -> str:
        return self._log.stream_id

    @property
    def epoch(self) -> int:
        """The fencing token: a takeover moves the stream's past this one."""
        return self._log.epoch

    @property
    def cursor(self) -> int:
        """The next seq: the number of chunks stored as far as this handle knows.

        The loop of a producer that was restarted begins here. Pushed chunks
        count once they are stored.
        """
        return self._log.cursor

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this producer to stop.

        Costs no query: appends and renewals learn it, and the process asks for
        all its writers at least every ``POLL_MAX`` seconds.
        """
        return self._log.cancelled

    @property
    def background(self) -> bool:
        """Whether another thread of this process can use this handle's rows."""
        return self._store.background

    def on_cancelled(self, tell: Callable[[], object]) -> None:
        """Call *tell* when :attr:`cancelled` turns true, from any thread.

        At once if it is true already, and in a race twice. Keep it quick and
        thread-safe.
        """
        self._log.cancel_callbacks.append(tell)
        if self.cancelled:
            tell()

    # Appending

    def append(self, chunk: Json) -> int:
        """Store *chunk* and wake the readers; returns its seq.

        Stored when this returns; inside ``atomic()`` when that commits.
        """
        refuse_running_loop("append")
        return self._extend([self._encode(chunk)])

    async def aappend(self, chunk: Json) -> int:
        """Async twin of :meth:`append`, on a connection of its own.

        Cancelled: the chunk is stored or not; the handle knows which, and its
        next call continues at the right seq.
        """
        return await self._aextend([self._encode(chunk)])

    def extend(self, chunks: Iterable[Json]) -> int:
        """Store several chunks in one write, all or none; the first one's seq."""
        refuse_running_loop("extend")
        return self._extend([self._encode(chunk) for chunk in chunks])

    async def aextend(self, chunks: Iterable[Json]) -> int:
        """Async twin of :meth:`extend`. Cancelled: all chunks are stored or none."""
        return await self._aextend([self._encode(chunk) for chunk in chunks])

    def push(self, chunk: Json) -> None:
        """Queue *chunk*; it is written at once unless a write is in flight.

        Blocks while ``PUSH_CHUNKS`` are queued. Raises what an earlier write
        failed with. Inside ``atomic()`` it appends.
        """
        refuse_running_loop("push")
        text = self._encode(chunk)
        self._renew_in_background()
        if self._store.inline or self._store.in_atomic():
            self._extend([text])
            return
        while (full := self._pushes.put(text, self._log.start)) is not None:
            full.result()

    async def apush(self, chunk: Json) -> None:
        """Async twin of :meth:`push`. Cancelled: the chunk is queued or not."""
        text = self._encode(chunk)
        if self._store.inline:
            await self._aextend([text])
            return
        await self._store.admit()
        while (full := self._pushes.put(text, self._log.start)) is not None:
            await asyncio.wrap_future(full)

    def flush(self) -> None:
        """Return when everything pushed is stored."""
        refuse_running_loop("flush")
        self._drain()

    async def aflush(self) -> None:
        """Async twin of :meth:`flush`. Cancelled: the writes go on."""
        await self._adrain()

    def hurry(self) -> None:
        """From now on no append is tried again: what the database does not take at
        once raises :class:`StreamUnavailableError`, also what is being tried now.

        For a producer that is to end; a settlement keeps its patience. Thread-safe.
        """
        self._log.hurry.set()

    def drop(self) -> None:
        """Forget what was pushed and is not stored, instead of flushing it.

        For a producer that ends although its database refuses what it says: the log
        then ends with what it took, and :attr:`cursor` tells how much. Raises
        :class:`StreamUnavailableError` while nobody can tell whether the last write
        was stored.
        """
        refuse_running_loop("drop")
        while (flight := self._pushes.drop()) is not None:
            flight.result()
        self._log.give_up()

    async def adrop(self) -> None:
        """Async twin of :meth:`drop`. Cancelled: what was queued is forgotten."""
        async with self._in_order():
            while (flight := self._pushes.drop()) is not None:
                await asyncio.wrap_future(flight)
            await self._run_waiting(self._log.give_up)

    # Settling

    def close(self, *, commit: Commit | None = None, discard: bool = False) -> bool:
        """Settle as completed, after flushing. False if it was settled before.

        *commit*, a synchronous callable, the settlement and with *discard* the
        deletion are one transaction. If *commit* raises, nothing changed, the
        stream is live and the exception is yours; a lost connection or a deadlock
        inside of it is not, the whole is done again, so it may run more than once,
        of which one time counts. On a settled stream neither runs. Raises
        :class:`StreamFencedError` after a takeover and ``TypeError`` for a
        coroutine function.
        """
        refuse_running_loop("close")
        return self._end(Ending(StreamState.COMPLETED, None, commit, discard))

    async def aclose(
        self, *, commit: Commit | None = None, discard: bool = False
    ) -> bool:
        """Async twin of :meth:`close`; *commit* runs on a database thread.

        Cancelled: it is settled or not, with all that belongs to it.
        """
        return await self._aend(Ending(StreamState.COMPLETED, None, commit, discard))

    def error(
        self,
        reason: str | None = None,
        *,
        commit: Commit | None = None,
        discard: bool = False,
    ) -> bool:
        """Settle as errored with *reason*, which readers see; else as close."""
        refuse_running_loop("error")
        return self._end(Ending(StreamState.ERRORED, reason, commit, discard))

    async def aerror(
        self,
        reason: str | None = None,
        *,
        commit: Commit | None = None,
        discard: bool = False,
    ) -> bool:
        """Async twin of :meth:`error`. Cancelled: it is settled or not."""
        return await self._aend(Ending(StreamState.ERRORED, reason, commit, discard))

    @sync_door
    def renew(self) -> None:
        """Extend the lease from now on, also after it lapsed.

        Raises :class:`StreamFencedError` once somebody took over.
        """
        persist(self._store, self._log.renew_once, stream_id=self.stream_id)

    arenew = async_door(renew, cancelled="the lease is extended or not.", waits=True)

    # Context managers

    def __enter__(self) -> Self:
        refuse_running_loop("__enter__", "async with")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        elif not self._leave_live(error):
            self.error(self._reason(error))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
        elif not self._leave_live(error):
            await self.aerror(self._reason(error))

    def _leave_live(self, error: BaseException) -> bool:
        resumes = self._log.lease is not None and isinstance(
            error, asyncio.CancelledError
        )
        if resumes or isinstance(error, StreamFencedError):
            get_keeper().remove(self._log)
            return True
        return False

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, StreamCancelledError):
            return CANCELLED
        if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
            return INTERRUPTED
        return public_reason(error, f"the producer of stream {self.stream_id!r}")

    # How it is done

    def _run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> Awaitable[R]:
        return self._store.run(work, *args, **kwargs)

    def _run_waiting(
        self, work: Callable[..., R], *args: Any, **kwargs: Any
    ) -> Awaitable[R]:
        return self._store.run_waiting(work, *args, **kwargs)

    def _encode(self, chunk: Json) -> str:
        return codec.encode(
            chunk, limit=self._max_chunk_bytes, stream_id=self.stream_id
        )

    def _in_order(self) -> asyncio.Lock:
        """First come, first served among the tasks of this loop."""
        loop = asyncio.get_running_loop()
        if (order := self._order.get(loop)) is None:
            order = self._order[loop] = asyncio.Lock()
        return order

    def _extend(self, texts: list[str]) -> int:
        self._drain()
        return self._log.write(texts)

    async def _aextend(self, texts: list[str]) -> int:
        async with self._in_order():
            await self._adrain()
            if self._store.inline:
                return await self._store.run(self._log.write, texts)
            await self._store.admit()
            return await _landing(partial(self._log.start, texts))

    def _drain(self) -> None:
        if self._store.in_atomic():
            self._log.write(self._pushes.take())
            return
        while (flight := self._pushes.drain(self._log.start)) is not None:
            flight.result()

    async def _adrain(self) -> None:
        while (flight := self._pushes.drain(self._log.start)) is not None:
            await asyncio.wrap_future(flight)

    def _renew_in_background(self) -> None:
        if self._log.lease is not None and not self._log.renews:
            self._log.renews = True
            get_keeper().add(self._log, self._waker)

    def _end(self, ending: Ending) -> bool:
        try:
            self._drain()
        except (StreamCancelledError, StreamClosedError):
            self._pushes.drop()
        return self._settled(self._log.settle(ending))

    async def _aend(self, ending: Ending) -> bool:
        async with self._in_order():
            try:
                await self._adrain()
            except (StreamCancelledError, StreamClosedError):
                self._pushes.drop()
            if self._store.inline:
                return self._settled(await self._store.run(self._log.settle, ending))
            await self._store.admit()
            start = partial(self._log.start_settle, ending)
            return self._settled(bool(await _landing(start)))

    def _settled(self, first: bool) -> bool:
        if not self._store.in_atomic():
            get_keeper().remove(self._log)
        return first


async def _landing(start: Callable[[Told], Place]) -> int:
    """What *start* tells, awaited; cancelled before its turn it is not begun."""
    loop = asyncio.get_running_loop()
    landed: asyncio.Future[int] = loop.create_future()
    place = start(partial(delivery_to(loop).post, landed))
    try:
        return await landed
    except asyncio.CancelledError:
        place.drop()
        raise
