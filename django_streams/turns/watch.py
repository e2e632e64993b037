"""Follows the event logs of conversations: one task for all of an event loop.

Wakes make it look at once; the poll is the correctness path. Each followed
conversation has its own next look, after POLL_MIN and doubling to POLL_MAX
while nothing happens; what is due is asked together in one query, however many
connections follow. The same query tells whose running turn has lost its
runner, so a lapsed lease is noticed wherever somebody follows.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from .. import conf
from ..ticks import next_tick
from ..wake import get_waker
from . import backlog, conversations, door
from .records import ConversationRef, Event

logger = logging.getLogger("django_streams.turns")

_MOST_IDS = 500
"""Conversations in one query; SQLite takes 999 parameters on Django 5.2."""

_PAGE = 200
"""Events in one query, and remembered for each followed conversation."""

_ATTENTION = 0.25
"""Share of POLL_MAX after which a runner looks again: a stop that no wake tells
of must reach it, and its end the one who asked, within one POLL_MAX."""

_NO_HEAD = backlog.Head(cursor=0, lapsed=False)
"""Of a conversation before its first submit."""

Callback = Callable[[], None]


@dataclass(eq=False)
class Feed:
    """One followed conversation."""

    ref: ConversationRef
    looked: bool = False
    cursor: int = 0
    recent: deque[Event] = field(default_factory=lambda: deque(maxlen=_PAGE))
    due: float = 0.0
    pause: float = 0.0
    news: set[Callback] = field(default_factory=set)
    lapsed: set[Callback] = field(default_factory=set)
    attentive: set[Callback] = field(default_factory=set)
    unlisten: Callable[[], None] = lambda: None

    @property
    def longest_pause(self) -> float:
        return conf.get().POLL_MAX * (_ATTENTION if self.attentive else 1.0)

    def after(self, seq: int) -> list[Event] | None:
        """The known events that follow *seq*; None if the store must be asked."""
        if seq >= self.cursor:
            return []
        if not self.recent or self.recent[0].seq > seq + 1:
            return None
        return [event for event in self.recent if event.seq > seq]


class Subscription:
    """One follower of a conversation; :meth:`close` ends it."""

    def __init__(
        self, watch: Watch, feed: Feed, news: Callback, lapsed: Callback | None
    ) -> None:
        self._watch = watch
        self._feed = feed
        self._news = news
        self._lapsed = lapsed

    async def after(self, seq: int) -> Sequence[Event]:
        """What has happened since *seq*; empty when nothing has.

        A gap behind *seq* means that older events were trimmed: the first one
        returned then does not follow on *seq*.
        """
        known = self._feed.after(seq)
        if known is not None:
            return known
        return await door.run(
            conversations.events_after, self._feed.ref.key, seq, _PAGE
        )

    def close(self) -> None:
        self._watch.drop(self._feed, self._news, self._lapsed)


class Watch:
    """The followed conversations of one event loop; gone when nobody follows."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._feeds: dict[str, Feed] = {}
        self._poked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def follow(
        self,
        ref: ConversationRef,
        news: Callback,
        lapsed: Callback | None = None,
        *,
        attentive: bool = False,
    ) -> Subscription:
        """Call *news* whenever the event log may have grown, *lapsed* when the
        running turn has lost its runner; both on this loop, and quick.

        Follow first, then read the position to start from. *attentive*: look
        more often, for somebody waits for what this follower does.
        """
        feed = self._feeds.get(ref.key)
        if feed is None:
            feed = self._feeds[ref.key] = Feed(ref)
            feed.pause = conf.get().POLL_MIN
            feed.unlisten = get_waker().listen(ref.wake_key, self._waker_callback(feed))
        feed.news.add(news)
        if lapsed is not None:
            feed.lapsed.add(lapsed)
        if attentive:
            feed.attentive.add(news)
        self._look(feed)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(
                self._run(), context=contextvars.Context()
            )
        return Subscription(self, feed, news, lapsed)

    def drop(self, feed: Feed, news: Callback, lapsed: Callback | None) -> None:
        feed.news.discard(news)
        feed.attentive.discard(news)
        if lapsed is not None:
            feed.lapsed.discard(lapsed)
        if not feed.news and self._feeds.get(feed.ref.key) is feed:
            del self._feeds[feed.ref.key]
            feed.unlisten()
            self._poked.set()

    def _waker_callback(self, feed: Feed) -> Callback:
        # Weakly: the process's waker outlives loops, and must not keep them.
        mine, what = weakref.ref(self), weakref.ref(feed)

        def woken() -> None:
            watch, feed = mine(), what()
            if watch is None or feed is None or watch._loop.is_closed():
                return
            watch._loop.call_soon_threadsafe(watch._look, feed)

        return woken

    def _look(self, feed: Feed) -> None:
        feed.due = 0.0
        self._poked.set()

    async def _run(self) -> None:
        while self._feeds:
            self._poked.clear()
            now = self._loop.time()
            due = [feed for feed in self._feeds.values() if feed.due <= now]
            for start in range(0, len(due), _MOST_IDS):
                await self._ask(due[start : start + _MOST_IDS])
            if not self._feeds:
                break
            pause = min(feed.due for feed in self._feeds.values()) - self._loop.time()
            try:
                async with asyncio.timeout(max(0.0, pause)):
                    await self._poked.wait()
            except TimeoutError:
                pass
        _watches.pop(self._loop, None)

    async def _ask(self, feeds: Sequence[Feed]) -> None:
        for feed in feeds:
            # Before the question: a wake that comes meanwhile asks again.
            feed.pause = min(feed.pause, feed.longest_pause)
            feed.due = next_tick(self._loop.time(), feed.pause)
            feed.pause *= 2
        try:
            heads = await door.run(backlog.heads, [feed.ref.key for feed in feeds])
            for feed in feeds:
                head = heads.get(feed.ref.key, _NO_HEAD)
                if head.cursor > feed.cursor:
                    await self._fetch(feed, head.cursor)
                feed.looked = True
                if head.lapsed:
                    _call(feed.lapsed)
        except Exception as error:
            logger.warning("could not look at the conversations: %s", error)

    async def _fetch(self, feed: Feed, cursor: int) -> None:
        if feed.looked:
            events = await door.run(
                conversations.events_after, feed.ref.key, feed.cursor, _PAGE
            )
            feed.recent.extend(events)
            feed.cursor = events[-1].seq if events else cursor
        else:
            # The first look: followers read from their own position.
            feed.cursor = cursor
        feed.pause = conf.get().POLL_MIN
        feed.due = min(feed.due, self._loop.time() + feed.pause)
        _call(feed.news)


def _call(callbacks: Iterable[Callback]) -> None:
    for callback in list(callbacks):
        callback()


_watches: dict[asyncio.AbstractEventLoop, Watch] = {}


def get_watch() -> Watch:
    """The watch of the running loop."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop)
    if watch is None:
        for other in [known for known in _watches if known.is_closed()]:
            del _watches[other]
        watch = _watches[loop] = Watch(loop)
    return watch
