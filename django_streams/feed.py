"""The shared tail: one fetch a wake feeds all local readers of a stream.

A :class:`Feed` holds the recent end of one stream in a bounded window. Readers
that are inside it take their texts without a query; one that lags goes back to
the store. Readers pull: none has a queue.

The :class:`Hub` asks for all followed streams together whether they moved. That
poll is the correctness path; a wake only makes a feed look sooner.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from django.db import connections

from . import conf
from .exceptions import StreamsError, StreamUnavailableError
from .pages import Pages
from .spans import Slice
from .store.base import Head, Page, StreamStore, deleted
from .store.kept import keep_connection
from .store.retry import once_more, persist
from .ticks import next_tick
from .wake.base import Waker
from .window import Window

logger = logging.getLogger("django_streams.feed")

_ODD = 60.0
"""Seconds after which the poll looks at its feeds though none is due."""

_MOST_IDS = 500
"""Streams asked for in one query; SQLite takes 999 parameters on Django 5.2."""


@dataclass(frozen=True, slots=True)
class View:
    """What a reader at some position can have at once."""

    parts: Sequence[Slice]
    cursor: int
    settled: bool


@dataclass(frozen=True, slots=True, eq=False)
class Bell:
    """Rings one reader: on its loop, or in its thread (*loop* is None)."""

    event: asyncio.Event | threading.Event
    loop: asyncio.AbstractEventLoop | None


class Feed:
    """The end of one stream, as far as this process has fetched it."""

    def __init__(self, store: StreamStore, waker: Waker, key: str, head: Head) -> None:
        self.store = store
        self.pk = head.pk
        self.key = key
        self.readers = 0
        self.next_poll = 0.0
        self._waker = waker
        self._pause = conf.get().POLL_MIN
        # Re-entrant: a signal handler may wake from within.
        self._lock = threading.RLock()
        self._window = Window(head.cursor, conf.get().PAGE_BYTES)
        self._view: tuple[int, View] | None = None
        self._settled = False
        self._gone = False
        self._failure: str | None = None
        self._bells: set[Bell] = set()
        self._fetching = False
        self._again = False
        self._quiet = 0
        """The thread whose wakes say only what this feed has been handed."""
        self._unlisten: Callable[[], None] | None = None

    @property
    def first(self) -> int:
        """Seq of the oldest chunk in the window."""
        return self._window.first

    @property
    def cursor(self) -> int:
        return self._window.cursor

    def follow(self) -> None:
        """Subscribe, then read: what came in between is found by the fetch."""
        self._unlisten = self._waker.listen(self.key, self.look)
        self.look()

    def leave(self) -> None:
        if self._unlisten is not None:
            self._unlisten()

    def add(self, bell: Bell) -> None:
        with self._lock:
            self._bells.add(bell)

    def remove(self, bell: Bell) -> None:
        with self._lock:
            self._bells.discard(bell)

    @property
    def over(self) -> bool:
        """Whether nothing can come any more."""
        return self._settled or self.broken

    @property
    def broken(self) -> bool:
        """Whether it ended for a reason that its readers must be told."""
        return self._gone or self._failure is not None

    def view(self, position: int, stream_id: str) -> View | None:
        """What is here from *position* on; None for a reader that lags.

        Raises what ended the feed: :class:`StreamClosedError` when the stream
        was deleted, :class:`StreamUnavailableError` when the database did not
        answer.
        """
        with self._lock:
            if self._gone:
                raise deleted(stream_id)
            if self._failure is not None:
                raise StreamUnavailableError(self._failure, stream_id=stream_id)
            if self._view is not None and self._view[0] == position:
                # All who follow are at the same place.
                return self._view[1]
            if position < self.first:
                return None
            view = View(self._window.after(position), self.cursor, self._settled)
            self._view = position, view
            return view

    def end(self) -> None:
        """The row is gone."""
        with self._lock:
            self._gone = True
        self._ring()

    def look(self) -> None:
        """Fetch what is new, in the background; any thread, returns at once."""
        if self._quiet == threading.get_ident():
            return
        with self._lock:
            if self._fetching:
                self._again = True
                return
            # A settled stream changes once more, when it is deleted.
            if self.broken:
                return
            self._fetching = True
        try:
            self.store.submit(self._fetch)
        except RuntimeError:
            # No thread can be started. The poll looks again, and must go on.
            with self._lock:
                self._fetching = False

    def hand(self, first: int, texts: Sequence[str]) -> bool:
        """Take chunks that this process has just stored from *first* on.

        They are committed. False if this feed cannot use them, for it lacks what
        is before them: it must look.
        """
        with self._lock:
            if self.over or first > self.cursor:
                return False
            # A fetch may have brought it, or some of it.
            self._add(texts[self.cursor - first :])
        self._ring()
        return True

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What this thread wakes meanwhile is no news to this feed.

        Another thread may take its place in the middle: then it looks, in vain.
        """
        self._quiet = threading.get_ident()
        try:
            yield
        finally:
            self._quiet = 0

    def seen(self, head: Head | None) -> bool:
        """Take the poll's answer; whether there is something to fetch."""
        with self._lock:
            if self.over:
                self.next_poll = float("inf")
                return False
            if (
                head is not None
                and head.cursor == self.cursor
                and not head.state.settled
                and not head.lapsed
            ):
                self.rest()
                return False
            return True

    def rest(self) -> None:
        """Put the next poll off; twice as long each time nothing came."""
        self.next_poll = next_tick(time.monotonic(), self._pause)
        self._pause = min(self._pause * 2, conf.get().POLL_MAX)

    def _fetch(self) -> None:
        while True:
            try:
                position = self.cursor
                page = persist(self.store, partial(self._page, position))
                more = self._take(position, page)
            except Exception as error:
                self._fail(error)
                more = False
            self._ring()
            with self._lock:
                if not more and not self._again:
                    self._fetching = False
                    return
                self._again = False

    def _page(self, position: int) -> Page | None:
        page = self.store.page(self.pk, position, conf.get().PAGE_BYTES)
        if page is not None and page.head.lapsed:
            if self.store.settle_lapsed(self.pk, page.head.epoch):
                self._waker.wake(self.key)
            page = self.store.page(self.pk, position, conf.get().PAGE_BYTES)
        return page

    def _add(self, texts: Sequence[str]) -> None:
        if texts:
            self._pause = conf.get().POLL_MIN
        self.rest()
        self._window.add(texts)
        self._view = None

    def _take(self, position: int, page: Page | None) -> bool:
        """Whether the stream holds more than the page from *position* brought."""
        with self._lock:
            if page is None:
                self._gone = True
                return False
            # Some of it may have been handed over since it was asked for.
            self._add(page.texts[self.cursor - position :])
            more = self.cursor < page.head.cursor
            self._settled = page.head.state.settled and not more
            return more

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, StreamsError):
            logger.exception("following stream row %d failed", self.pk)
        with self._lock:
            self._failure = f"following the stream failed: {error}; read it again"

    def _ring(self) -> None:
        with self._lock:
            bells = list(self._bells)
        loops: dict[asyncio.AbstractEventLoop, list[Bell]] = {}
        for bell in bells:
            if bell.loop is None:
                bell.event.set()
            else:
                loops.setdefault(bell.loop, []).append(bell)
        for loop, some in loops.items():
            try:
                # One hand-over a loop, however many readers it has.
                loop.call_soon_threadsafe(_ring_all, some)
            except RuntimeError:
                # That loop has ended, and its readers with it.
                continue


def _ring_all(bells: Sequence[Bell]) -> None:
    for bell in bells:
        bell.event.set()


def batched(feeds: Sequence[Feed], size: int) -> Iterator[Sequence[Feed]]:
    for start in range(0, len(feeds), size):
        yield feeds[start : start + size]


class Hub:
    """The feeds of this process, and the one poll for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._feeds: dict[tuple[str, int], Feed] = {}
        self._polling = False
        self.pages = Pages()

    def join(self, store: StreamStore, waker: Waker, key: str, head: Head) -> Feed:
        """The feed of a stream, shared by all local readers; see :meth:`leave`."""
        with self._lock:
            if not self._polling:
                # Before anything is counted: there may be no thread to be had.
                threading.Thread(
                    target=self._poll, name="django-streams-poll", daemon=True
                ).start()
                self._polling = True
            feed = self._feeds.get((store.alias, head.pk))
            fresh = feed is None or feed.broken
            if feed is None or feed.broken:
                feed = Feed(store, waker, key, head)
                self._feeds[store.alias, head.pk] = feed
            feed.readers += 1
            self._lock.notify()
        if fresh:
            feed.follow()
        return feed

    def leave(self, feed: Feed) -> None:
        with self._lock:
            feed.readers -= 1
            last = feed.readers == 0
            place = feed.store.alias, feed.pk
            if last and self._feeds.get(place) is feed:
                del self._feeds[place]
        if last:
            feed.leave()
            self.pages.drop(place)

    def follows(self, alias: str, pk: int) -> Feed | None:
        """The feed of a row, if anybody here reads it."""
        return self._feeds.get((alias, pk))

    def feeds(self) -> list[Feed]:
        """What is followed just now."""
        with self._lock:
            return list(self._feeds.values())

    def gone(self, alias: str, key: str) -> None:
        """This process deleted a stream: its readers need not ask to know."""
        with self._lock:
            feeds = [feed for feed in self._feeds.values() if feed.key == key]
        for feed in feeds:
            if feed.store.alias != alias:
                continue
            try:
                # The id may be another stream's by now: the row knows.
                if feed.pk not in feed.store.heads([feed.pk]):
                    feed.end()
            except Exception as error:
                logger.warning("whether a stream is gone was not told: %s", error)
                feed.look()

    def _poll(self) -> None:
        keep_connection()
        try:
            while (due := self._due()) is not None:
                by_alias: dict[str, list[Feed]] = {}
                for feed in due:
                    by_alias.setdefault(feed.store.alias, []).append(feed)
                for feeds in by_alias.values():
                    for some in batched(feeds, _MOST_IDS):
                        self._ask(some)
        finally:
            connections.close_all()

    def _due(self) -> list[Feed] | None:
        """Wait for feeds whose poll is due; None once there are no feeds."""
        with self._lock:
            while True:
                if not self._feeds and not self._lock.wait(conf.get().POOL_IDLE):
                    if self._feeds:
                        continue
                    self._polling = False
                    return None
                now = time.monotonic()
                due = [f for f in self._feeds.values() if f.next_poll <= now]
                if due:
                    return due
                soonest = min((f.next_poll for f in self._feeds.values()), default=now)
                # join() notifies; the bound is for a clock that has no answer.
                self._lock.wait(soonest - now if soonest - now < _ODD else _ODD)

    def _ask(self, feeds: Sequence[Feed]) -> None:
        store = feeds[0].store
        try:
            heads = once_more(store, lambda: store.heads([feed.pk for feed in feeds]))
        except Exception as error:
            # This thread must go on. Readers hear what is wrong from the fetch,
            # which retries and then gives up.
            logger.warning("could not ask what moved: %s", error)
            heads = None
        for feed in feeds:
            if heads is None or feed.seen(heads.get(feed.pk)):
                feed.rest()
                feed.look()


_hub = Hub()


def get_hub() -> Hub:
    """This process's hub."""
    return _hub


def _forget() -> None:
    # The parent's poller does not exist in the child.
    global _hub
    _hub = Hub()


os.register_at_fork(after_in_child=_forget)
