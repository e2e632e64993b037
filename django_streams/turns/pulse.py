"""Signs of life of a run, in both directions: it renews the turn's lease, hears
a request to stop, and tells a handler that is slow from one that is stuck."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from .. import conf
from ..writer import StreamWriter
from . import door, lease, queue
from .records import ConversationRef, TurnRecord
from .watch import get_watch
from .watched import Watched

logger = logging.getLogger("django_streams.turns")

P = ParamSpec("P")
R = TypeVar("R")

RENEWALS_PER_LEASE = 3.3
"""A lease of 5 s is renewed every 1.5 s: two renewals may fail."""


class Pulse:
    """Of one run. Use it on the run's loop."""

    def __init__(self, ref: ConversationRef, record: TurnRecord) -> None:
        self._ref = ref
        self._record = record
        self._lease = conf.get().TURN_LEASE
        self._stop: Callable[[], None] = lambda: None
        self._due = math.inf
        """When to renew, by the loop's clock; not known before the first look."""
        self._timeout: float | None = None
        self._alive = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._busy = 0
        self._away = False
        """Whether the database did not answer the last time."""
        self.renewed = -math.inf
        """When the lease was last renewed, by the loop's clock."""
        self.renewing = False
        """Whether the last renewal was stored."""
        self.writer: StreamWriter | None = None
        """The reply's, once it has begun: it may be stopped by itself."""
        self.stopping = asyncio.Event()
        """Set when the run is to end, for whatever reason."""
        self.lost = False
        """The turn is another runner's: nothing of it is ours to write."""
        self.watched: Watched | None = None
        """Set where the turn is to stop when nobody watches."""
        self.stalled: float | None = None
        """Seconds without a sign of life after which the handler was given up."""

    async def run(self, stop: Callable[[], None]) -> None:
        """Renew the lease until cancelled or lost; *stop* is called, quick, when
        the run is to end."""
        self._stop = stop
        news = asyncio.Event()
        following = get_watch().follow(self._ref, news.set, attentive=True)
        try:
            while not self.lost:
                news.clear()
                await (self._renew() if self._overdue else self._look())
                if self.writer is not None and self.writer.cancelled:
                    self.stop()
                if self.watched is not None and await self.watched.over():
                    self.stop()
                try:
                    async with asyncio.timeout(min(self._until_due, self._interval)):
                        await news.wait()
                except TimeoutError:
                    pass
        finally:
            following.close()
            self._end_timer()

    def lose(self) -> None:
        """Somebody else has the turn."""
        self.lost = True
        self.stop()

    def stop(self) -> None:
        self.stopping.set()
        self._stop()

    async def beat(self) -> None:
        """The handler lives. Costs a query only once in a while."""
        self._live()
        if self._overdue:
            await self._renew()

    @property
    def _interval(self) -> float:
        return self._lease / RENEWALS_PER_LEASE

    @property
    def _until_due(self) -> float:
        return self._due - asyncio.get_running_loop().time()

    @property
    def _overdue(self) -> bool:
        return self._until_due <= 0

    async def _renew(self) -> None:
        self._due = asyncio.get_running_loop().time() + self._interval
        stop = await self._ask(lease.renew, self._record, self._lease)
        self.renewing = stop is not None
        if self.renewing:
            self.renewed = asyncio.get_running_loop().time()
        if stop:
            self.stop()

    async def _look(self) -> None:
        """Nobody has to write because there is news."""
        now = asyncio.get_running_loop().time()
        standing = await self._ask(lease.standing, self._record)
        if standing is None:
            return
        # Also of a lease that was given long ago: the claim's answer may be late.
        self._due = min(self._due, now + standing.left - self._lease + self._interval)
        if standing.stop:
            self.stop()

    async def _ask(
        self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R | None:
        """What *work* returns; None if the turn is lost, or nobody can tell."""
        result = None
        try:
            result = await door.run(work, *args, **kwargs)
            self._away = False
        except queue.Lost:
            self.lose()
        except Exception as error:
            # Once an outage, not once a renewal.
            logger.log(
                logging.DEBUG if self._away else logging.WARNING,
                "turn %r of %s: lease not renewed: %s",
                self._record.request_id,
                self._ref.agent,
                error,
            )
            self._away = True
        return result

    # Whether the handler is stuck

    @contextmanager
    def expect(self, timeout: float | None) -> Iterator[None]:
        """Expect a sign of life every *timeout* seconds inside the block."""
        self._timeout = timeout
        self._live()
        if timeout is not None:
            self._set_timer(timeout)
        try:
            yield
        finally:
            self._end_timer()

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Inside the block it is not the handler that is waited for; whoever
        gets here lives. Blocks may overlap."""
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._live()

    def _live(self) -> None:
        self._alive = asyncio.get_running_loop().time()

    def _set_timer(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(seconds, self._check)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        assert self._timeout is not None
        if self._busy:
            self._live()
        left = self._alive + self._timeout - asyncio.get_running_loop().time()
        if left > 0:
            self._set_timer(left)
        elif not self.stopping.is_set():
            self.stalled = self._timeout
            self.stop()
