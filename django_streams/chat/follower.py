"""Shows the chunks of replies to one connection, one reply after the other.

It pulls from the store and pauses when a send blocks, so a client that does not
read holds one batch and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from .. import conf
from ..exceptions import (
    StreamClosedError,
    StreamNotFoundError,
    StreamUnavailableError,
)
from ..streams import Streams
from .handshake import Follow, Replay, Reply
from .pace import Pace

logger = logging.getLogger("django_streams.chat")

BATCH = 100
"""Chunks of a replay that are fetched and held at a time."""

SendText = Callable[[str], Awaitable[None]]


class Follower:
    """One task at a time; *idle* is called whenever there is nothing to show."""

    def __init__(
        self, streams: Streams, send: SendText, idle: Callable[[], None]
    ) -> None:
        self._streams = streams
        self._send = send
        self._idle = idle
        self._jobs: deque[Follow | Replay] = deque()
        self._task: asyncio.Task[None] | None = None
        self._live = False
        self._pace = Pace()

    @property
    def busy(self) -> bool:
        return self._task is not None

    async def start(self, job: Follow | Replay) -> None:
        """Show *job* after what is being shown.

        A reply that is followed live already is shown again from the start at
        once; one whose replay is under way, after that replay: each acceptance
        of an offer gets a full one.
        """
        if self._live and isinstance(job, Follow):
            await self.stop()
        self._jobs.append(job)
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._done)

    async def stop(self) -> None:
        """Show nothing more; returns when no send is under way."""
        self._jobs.clear()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        self._live = False
        if not task.cancelled() and (error := task.exception()) is not None:
            # The socket is gone, and its receiving side ends the connection.
            logger.debug("following ended: %r", error)
        self._idle()

    async def _run(self) -> None:
        while self._jobs:
            job = self._jobs.popleft()
            with contextlib.suppress(StreamClosedError, StreamNotFoundError):
                # Deleted: what comes next tells how the turn ended.
                await self._show(job.reply, job)
            if isinstance(job, Replay):
                await self._send(job.last)

    async def _show(self, reply: Reply, job: Follow | Replay) -> None:
        replayed = 0
        if isinstance(job, Replay) or job.replay:
            status = await self._streams.astatus(reply.stream)
            replayed = status.cursor if status is not None else 0
        response = reply.response
        position = 0
        complete = isinstance(job, Follow) and job.replay
        if complete and not replayed:
            await self._send(response.replay_complete())
        self._live = isinstance(job, Follow) and not replayed
        while True:
            try:
                async with aclosing(
                    self._streams.aread_batches(
                        reply.stream, start=position, batch_size=BATCH, raw=True
                    )
                ) as batches:
                    async for batch in batches:
                        for item in batch:
                            replay = item.seq < replayed
                            frame = response.chunk(item.seq, item.chunk, replay=replay)
                            await self._pace.pay(len(frame))
                            await self._send(frame)
                            position = item.seq + 1
                            if position != replayed:
                                continue
                            if complete:
                                await self._send(response.replay_complete())
                            if self._jobs:
                                # Accepted again in the middle of the replay.
                                return
                            self._live = isinstance(job, Follow)
                return
            except StreamUnavailableError as error:
                logger.warning("reading %s goes on later: %s", reply.stream, error)
                await asyncio.sleep(conf.get().POLL_MAX)
