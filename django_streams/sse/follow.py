"""One response's bytes: replay, follow, heartbeats, and every way to end.

One task, the server's: it waits in the reader, and timers nudge the reader when
something else is due. A second task and a hand-over between them would cost
each of 500 viewers as much as the event itself. Timers re-arm themselves when
they fire, not at every event, so an event costs none.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Coroutine, Iterable
from itertools import chain
from typing import Any

from ..exceptions import StreamClosedError, StreamNotFoundError
from ..spans import Slice
from ..streams import Streams
from ..types import StreamState, StreamStatus
from . import encoder
from .resume import Plan
from .terms import Guard, Terms

logger = logging.getLogger("django_streams.sse")

RETRY_MS = range(1000, 5001)
"""When to reconnect; random, or all clients of a restart come back at once."""

DELETED = "deleted"
"""Reason told to a reader whose stream was deleted under it."""

_BURST = 0.1
"""Seconds of SSE_PACE that go out at once, so live events are never held."""


class EventStream:
    """Iterate once, in one task; that task is cancelled by a stuck client.

    Closing or cancelling the iterator ends the reader before it returns; no
    task, timer or subscription stays.
    """

    __slots__ = (
        "_age",
        "_beat",
        "_caught_up",
        "_created_at",
        "_cursor",
        "_ended",
        "_follower",
        "_helpers",
        "_loop",
        "_next",
        "_over",
        "_paid_until",
        "_plan",
        "_replayed",
        "_reset_told",
        "_retry",
        "_sending",
        "_stream_id",
        "_streams",
        "_task",
        "_terms",
        "_timer",
        "_wrote",
    )

    def __init__(
        self, streams: Streams, status: StreamStatus, plan: Plan, terms: Terms
    ) -> None:
        self._streams = streams
        # Not the status itself: its metadata would stay as long as the viewer.
        self._stream_id = status.stream_id
        self._created_at = status.created_at
        self._cursor = status.cursor
        self._plan = plan
        self._terms = terms
        self._follower = streams.follower(
            status.stream_id,
            start=plan.start,
            # A page at a time: cut into batches here, it holds no chunk any more.
            batch_size=None,
            on_up_to_date=self._up_to_date,
        )
        self._next = plan.start
        """Seq after the last chunk put out."""
        self._retry: int | None = RETRY_MS[secrets.randbelow(len(RETRY_MS))]
        self._caught_up = False
        """The client is to be told that it is up to date."""
        self._replayed = False
        """It was told."""
        self._reset_told = False
        self._ended = False
        """The end event is on its way."""
        self._over = False
        """Somebody ended the response: nothing more is sent."""
        self._beat = False
        """A heartbeat is due."""
        self._sending = False
        """The server has not come back from the last bytes."""
        self._wrote = 0.0
        """When bytes were handed over or the server came back from them."""
        self._paid_until = 0.0
        self._helpers: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._age: asyncio.TimerHandle | None = None

    def __aiter__(self) -> AsyncGenerator[bytes, None]:
        return self._run()

    async def _run(self) -> AsyncGenerator[bytes, None]:
        terms = self._terms
        if terms.stop is not None and terms.stop.is_set():
            return
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._wrote = self._loop.time()
        self._watch_later(terms.heartbeat, terms.send_timeout)
        if terms.max_age:
            self._age = self._loop.call_later(terms.max_age, self._finish)
        if terms.stop is not None:
            self._help(self._end_on(terms.stop))
        if terms.guard is not None:
            self._help(self._keep_asking(terms.guard))
        try:
            while (writes := await self._more()) is not None:
                for data in writes:
                    if terms.pace:
                        await self._pay(len(data), terms.pace)
                    if self._over:
                        return
                    self._beat = False
                    self._wrote, self._sending = self._loop.time(), True
                    if self._retry is None:
                        yield data
                    else:
                        yield self._first(data)
                    self._wrote, self._sending = self._loop.time(), False
                    del data
                del writes
        except Exception:
            # Nothing may escape into the server: Daphne's housekeeping dies of
            # an exception after the headers. No end event, so the client comes
            # back and resumes.
            logger.exception(
                "reading stream %r failed; its event stream ends and the client "
                "will reconnect",
                self._stream_id,
            )
        finally:
            self._follower.leave()
            self._task = None
            for owned in (self._timer, self._age, *self._helpers):
                if owned is not None:
                    owned.cancel()
            await asyncio.gather(*self._helpers, return_exceptions=True)

    # What is sent

    async def _more(self) -> Iterable[bytes] | None:
        """What to write next; None once the response is over."""
        if self._over or self._ended:
            return None
        try:
            parts = await self._follower.anext()
            if parts is not None:
                return self._writes(parts)
            end = self._end(await self._streams.astatus(self._stream_id))
        except (StreamNotFoundError, StreamClosedError):
            end = encoder.error(DELETED, self._next)
        self._ended = True
        return [end]

    def _writes(self, parts: list[Slice]) -> Iterable[bytes]:
        before, after = [], []
        if self._plan.reset and not self._reset_told:
            self._reset_told = True
            before.append(encoder.reset(self._cursor))
        # While following, what came since the last write is one.
        most = None if self._replayed else self._terms.batch_size
        if self._caught_up:
            self._caught_up, self._replayed = False, True
            after.append(encoder.up_to_date())
        if self._beat:
            after.append(encoder.HEARTBEAT)
        if not parts:
            return before + after
        self._next = parts[-1].first + parts[-1].length
        return chain(before, encoder.encode(parts, most=most), after)

    def _first(self, data: bytes) -> bytes:
        """*data*, the first event, which also tells when to reconnect."""
        retry, self._retry = self._retry, None
        return data if retry is None else encoder.with_retry(data, retry)

    def _up_to_date(self) -> None:
        self._caught_up = True

    def _end(self, status: StreamStatus | None) -> bytes:
        # The reader follows the row, status() the id: after a deletion the id
        # may already be another stream's.
        if status is None or status.created_at != self._created_at:
            return encoder.error(DELETED, self._next)
        if status.state is StreamState.COMPLETED:
            return encoder.done(status.cursor)
        return encoder.error(status.error, status.cursor)

    async def _pay(self, size: int, pace: int) -> None:
        """Wait until *size* bytes are within *pace* bytes a second."""
        now = self._loop.time()
        if self._paid_until > now + _BURST:
            await asyncio.sleep(self._paid_until - now - _BURST)
        self._paid_until = max(self._paid_until, now) + size / pace

    # Heartbeats, and what ends a response early

    def _watch(self) -> None:
        """The one timer: a heartbeat while idle, the send timeout while not."""
        terms = self._terms
        quiet = self._loop.time() - self._wrote
        due = terms.send_timeout if self._sending else terms.heartbeat
        if due and quiet >= due:
            if self._sending:
                self._give_up()
                return
            self._beat = True
            self._follower.nudge()
            quiet = 0.0
        # It is not set anew at every event, so it looks at both limits.
        self._watch_later(due - quiet, terms.heartbeat, terms.send_timeout)

    def _watch_later(self, *delays: float) -> None:
        some = [delay for delay in delays if delay > 0]
        self._timer = self._loop.call_later(min(some), self._watch) if some else None

    def _give_up(self) -> None:
        """Cancel the iterating task, which a send of the server's does not leave.

        There is no other way out of it. Django takes the cancel for a client
        that went away.
        """
        logger.warning(
            "a client of stream %r took no byte for %s s; its event stream ends",
            self._stream_id,
            self._terms.send_timeout,
        )
        self._over = True
        if self._task is not None:
            self._task.cancel()

    def _finish(self) -> None:
        self._over = True
        self._follower.nudge()

    def _help(self, work: Coroutine[Any, Any, None]) -> None:
        self._helpers.add(self._loop.create_task(work))

    async def _end_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._finish()

    async def _keep_asking(self, guard: Guard) -> None:
        granted = self._loop.time()
        while not self._over:
            await asyncio.sleep(guard.interval)
            try:
                async with asyncio.timeout(guard.interval):
                    allowed = await guard.allowed()
            except Exception:
                # A database that blinks throws nobody out; one that stays away
                # must not keep a revoked reader in.
                allowed = self._loop.time() < granted + 2 * guard.interval
                logger.warning(
                    "access to stream %r could not be checked; the reader %s",
                    self._stream_id,
                    "stays for now" if allowed else "is let go",
                    exc_info=True,
                )
            else:
                granted = self._loop.time()
            if not allowed:
                self._finish()
