"""Drives a reader's state machine: subscribe, then read, then wait.

The two drivers differ in how they call the store and how they wait, and in
nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from itertools import count

from . import codec, conf, ids
from .exceptions import StreamNotFoundError
from .feed import Bell, Feed, get_hub
from .pairs import refuse_running_loop
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
        batch_size: int,
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
        self._ahead: asyncio.Future[Page] | None = None
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
                            self._fetch()
                    case Act.DELIVER:
                        yield self._take()
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

    async def abatches(
        self, *, pulse: bool = False
    ) -> AsyncGenerator[list[StreamChunk], None]:
        """The batches; with *pulse* an empty list after each nudge, and one
        once the reader is up to date. Cancelled: nothing stays."""
        await self._store.run(self._find)
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        self._woken = woken
        leave = self._attend(Bell(woken, loop), wake)
        try:
            while True:
                if pulse and self._nudged:
                    self._nudged = False
                    yield []
                    continue
                match self._tail.decide():
                    case Act.FETCH:
                        if self._ahead is not None:
                            await self._take_ahead()
                            continue
                        woken.clear()
                        if not self._take_from_feed():
                            await self._store.run(self._fetch)
                    case Act.DELIVER:
                        self._read_ahead()
                        yield self._take()
                    case Act.UP_TO_DATE:
                        self._tell()
                        self._nudged = True
                    case Act.WAIT:
                        try:
                            async with asyncio.timeout(self._next_pause()):
                                await woken.wait()
                        except TimeoutError:
                            pass
                        self._tail.look_again()
                    case Act.FINISH:
                        return
        finally:
            if self._ahead is not None:
                self._ahead.cancel()
            leave()

    def nudge(self) -> None:
        """Make :meth:`abatches` yield; call it on the reader's loop."""
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
        if self._store.inline:
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
            return False
        self._tail.feed(view.texts, view.cursor, view.settled)
        return True

    def _read_ahead(self) -> None:
        """Read the next page of a replay while the batch is being sent."""
        if self._tail.at_end or self._ahead is not None or self._store.inline:
            return
        position = self._tail.fetch_from
        if self._feed is None or position < self._feed.first:
            self._ahead = asyncio.wrap_future(
                self._store.submit(partial(self._page, position))
            )

    async def _take_ahead(self) -> None:
        assert self._ahead is not None
        ahead, self._ahead = self._ahead, None
        page = await ahead
        settled = page.head.state.settled
        self._tail.feed(page.texts, page.head.cursor, settled)
        if not settled:
            # What it took for the end was so when it was read, perhaps before
            # the last wake: only a fresh look may decide to wait.
            self._tail.look_again()

    def _fetch(self) -> None:
        """Read a page of the store into the tail."""
        page = self._page(self._tail.fetch_from)
        if page.head.lapsed:
            epoch = page.head.epoch
            if persist(
                self._store,
                lambda: self._store.settle_lapsed(self._pk, epoch),
                stream_id=self._stream_id,
            ):
                self._waker.wake(self._key)
            page = self._page(self._tail.fetch_from)
        self._tail.feed(page.texts, page.head.cursor, page.head.state.settled)
        if page.texts:
            self._pause = conf.get().POLL_MIN

    def _page(self, start: int) -> Page:
        page = persist(
            self._store,
            lambda: self._store.page(self._pk, start, conf.get().PAGE_BYTES),
            stream_id=self._stream_id,
        )
        if page is None:
            raise deleted(self._stream_id)
        return page

    def _take(self) -> list[StreamChunk]:
        first, texts = self._tail.take()
        chunks = texts if self._raw else map(codec.decode, texts)
        return list(map(StreamChunk, count(first), chunks))

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
