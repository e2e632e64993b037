"""Drives a reader's state machine: subscribe, then read, then wait.

The two drivers differ in how they call the store and how they wait, and in
nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future
from functools import partial
from itertools import count

from . import codec, conf, ids
from .ahead import Read, ReadAhead
from .exceptions import StreamNotFoundError
from .feed import Bell, Feed, get_hub
from .pairs import refuse_running_loop
from .spans import Slice, cut
from .store.base import Head, Page, StreamStore, deleted
from .store.retry import persist
from .tail import Act, Tail
from .types import StreamChunk
from .wake.base import Waker

UpToDate = Callable[[], object]

_STOP_CHECK = 0.1
"""How late a sync reader may notice that its stop event is set."""


class Follower:
    """One reader of one stream, from *start* to the end."""

    def __init__(
        self,
        store: StreamStore,
        waker: Waker,
        stream_id: str,
        *,
        start: int,
        batch_size: int | None,
        on_up_to_date: UpToDate | None,
        raw: bool,
    ) -> None:
        self._store = store
        self._waker = waker
        self._stream_id = stream_id
        self._key = ids.stream_key(stream_id)
        self._raw = raw
        self._on_up_to_date = on_up_to_date
        self._tail = Tail(start, batch_size, conf.get().PAGE_BYTES)
        self._pause = conf.get().POLL_MIN
        self._pk = 0
        self._head: Head | None = None
        self._feed: Feed | None = None
        self._woken: asyncio.Event | None = None
        self._leave: Callable[[], None] | None = None
        self._ahead = ReadAhead(self._start_read, self._is_behind)
        self._nudged = False

    # The drivers

    def batches(
        self, name: str, stop: threading.Event | None, timeout: float | None
    ) -> Generator[list[StreamChunk], None, None]:
        refuse_running_loop(name)
        self._find()
        woken = threading.Event()
        leave = self._attend(Bell(woken, None), woken.set)
        try:
            news = time.monotonic()
            while not (stop is not None and stop.is_set()):
                match self._tail.decide():
                    case Act.FETCH:
                        woken.clear()
                        if not self._take_from_feed():
                            self._tail.feed(*self._read(self._tail.fetch_from))
                    case Act.DELIVER:
                        yield self._chunks(self._tail.take())
                        news = time.monotonic()
                    case Act.UP_TO_DATE:
                        self._tell()
                    case Act.WAIT:
                        left = None if timeout is None else news + timeout
                        self._wait(woken, stop, left)
                    case Act.FINISH:
                        return
        finally:
            leave()

    async def abatches(self) -> AsyncGenerator[list[StreamChunk], None]:
        """The batches. Cancelled: nothing stays."""
        try:
            while (parts := await self.anext()) is not None:
                if parts:
                    yield self._chunks(parts)
        finally:
            self.leave()

    async def anext(self) -> list[Slice] | None:
        """The next batch; None at the end of the stream.

        Empty after each :meth:`nudge`, and once when the reader is up to date.
        Cancelled: nothing is lost, the next call goes on. Call :meth:`leave` in
        the end, however it ends.
        """
        woken = self._woken
        if woken is None:
            woken = await self._arrive()
        while not self._nudged:
            match self._tail.decide():
                case Act.FETCH:
                    if await self._take_ahead():
                        continue
                    woken.clear()
                    if not self._take_from_feed():
                        position = self._tail.fetch_from
                        read = await self._store.run(self._read, position)
                        self._tail.feed(*read)
                case Act.DELIVER:
                    if not self._tail.at_end:
                        self._ahead.begin(self._tail.fetch_from)
                    return self._tail.take()
                case Act.UP_TO_DATE:
                    self._tell()
                    self._nudged = True
                case Act.WAIT:
                    await self._await(woken)
                case Act.FINISH:
                    return None
        self._nudged = False
        return []

    def leave(self) -> None:
        """Give up what was subscribed to; again, and unused, is harmless."""
        self._ahead.stop()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    async def _arrive(self) -> asyncio.Event:
        """Find the stream, and be told of what comes, on this loop."""
        await self._store.run(self._find)
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        self._leave = self._attend(Bell(woken, loop), wake)
        self._woken = woken
        return woken

    async def _await(self, woken: asyncio.Event) -> None:
        pause = self._next_pause()
        if pause is None:
            await woken.wait()
        else:
            try:
                async with asyncio.timeout(pause):
                    await woken.wait()
            except TimeoutError:
                pass
        self._tail.look_again()

    def nudge(self) -> None:
        """Make :meth:`anext` return; call it on the reader's loop."""
        self._nudged = True
        if self._woken is not None:
            self._woken.set()

    # The steps

    def _find(self) -> None:
        head = persist(
            self._store,
            lambda: self._store.head(self._key),
            stream_id=self._stream_id,
        )
        if head is None:
            raise StreamNotFoundError(
                f'Stream "{self._stream_id}" does not exist. Open it before reading, '
                "or use status() to probe for existence.",
                stream_id=self._stream_id,
            )
        # The row, not the id: an id that is created again is another stream.
        self._pk = head.pk
        self._head = head

    def _attend(self, bell: Bell, wake: Callable[[], None]) -> Callable[[], None]:
        """Be told of what comes, by the shared feed or, inline, by wakes alone."""
        assert self._head is not None
        if self._store.inline or self._store.in_atomic():
            # What this transaction sees may never be: no other reader gets it.
            return self._waker.listen(self._key, wake)
        hub = get_hub()
        feed = hub.join(self._store, self._waker, self._key, self._head)
        feed.add(bell)
        self._feed = feed

        def leave() -> None:
            feed.remove(bell)
            hub.leave(feed)

        return leave

    def _take_from_feed(self) -> bool:
        """Take what the shared feed has; False if this reader must ask the store."""
        feed, head = self._feed, self._head
        if feed is None or head is None:
            return False
        position = self._tail.fetch_from
        if feed.cursor < head.cursor and position < head.cursor:
            # The feed has not caught up with what was stored when this reader
            # came: to call that up to date would hide what is there.
            return False
        view = feed.view(position, self._stream_id)
        if view is None:
            kept = self._kept(position)
            if kept is None:
                return False
            self._tail.feed(*kept)
        else:
            self._tail.feed(view.parts, view.cursor, view.settled)
        return True

    def _kept(self, position: int) -> Read | None:
        """What another reader of this process has read at *position*."""
        if self._feed is None:
            return None
        place = self._store.alias, self._pk
        part = get_hub().pages.find(place, position)
        return None if part is None else Read([part], None, False)

    def _start_read(self, position: int) -> Future[Read]:
        return self._store.submit(partial(self._read, position))

    def _is_behind(self, position: int) -> bool:
        """Whether only the store has what is at *position*."""
        feed = self._feed
        return (
            feed is not None and position < feed.first and self._kept(position) is None
        )

    async def _take_ahead(self) -> bool:
        read = await self._ahead.take(self._tail.fetch_from)
        if read is None:
            return False
        # What it took for the end of a live stream was so when it was read,
        # perhaps before the last wake: only a fresh look may decide to wait.
        self._tail.feed(read.parts, read.cursor if read.settled else None, read.settled)
        return True

    def _read(self, position: int) -> Read:
        """A page of the store, unless somebody has just read it."""
        if (kept := self._kept(position)) is not None:
            return kept
        page = self._page(position)
        if page.head.lapsed:
            epoch = page.head.epoch
            if persist(
                self._store,
                lambda: self._store.settle_lapsed(self._pk, epoch),
                stream_id=self._stream_id,
            ):
                self._waker.wake(self._key)
            page = self._page(position)
        parts = []
        if page.texts:
            self._pause = conf.get().POLL_MIN
            spans = cut(position, page.texts)
            parts = [span.after(span.first) for span in spans]
            shared = self._feed is not None and self._feed.readers > 1
            # What a transaction of the caller's sees may never be.
            if shared and not self._store.in_atomic():
                for span in spans:
                    get_hub().pages.keep((self._store.alias, self._pk), span)
        return Read(parts, page.head.cursor, page.head.state.settled)

    def _page(self, start: int) -> Page:
        page = persist(
            self._store,
            lambda: self._store.page(self._pk, start, conf.get().PAGE_BYTES),
            stream_id=self._stream_id,
        )
        if page is None:
            raise deleted(self._stream_id)
        return page

    def _chunks(self, parts: list[Slice]) -> list[StreamChunk]:
        batch: list[StreamChunk] = []
        for part in parts:
            chunks = part.texts if self._raw else map(codec.decode, part.texts)
            batch += map(StreamChunk, count(part.first), chunks)
        return batch

    def _tell(self) -> None:
        self._tail.told()
        if self._on_up_to_date is not None:
            self._on_up_to_date()

    def _next_pause(self) -> float | None:
        """Until the own poll; None where the feed's hub polls for everybody."""
        if self._feed is not None:
            return None
        pause = self._pause
        self._pause = min(pause * 2, conf.get().POLL_MAX)
        return pause

    def _wait(
        self,
        woken: threading.Event,
        stop: threading.Event | None,
        until: float | None,
    ) -> None:
        pause = self._next_pause()
        poll = float("inf") if pause is None else time.monotonic() + pause
        while True:
            now = time.monotonic()
            if until is not None and now >= until:
                raise TimeoutError(
                    f'no news of stream "{self._stream_id}" within the timeout'
                )
            rest = poll - now if until is None else min(poll, until) - now
            if stop is not None:
                rest = min(rest, _STOP_CHECK)
            if (
                woken.wait(min(max(0.0, rest), threading.TIMEOUT_MAX))
                or time.monotonic() >= poll
            ):
                break
            if stop is not None and stop.is_set():
                return
        self._tail.look_again()
