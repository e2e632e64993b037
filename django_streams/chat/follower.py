"""Shows the chunks of replies to one connection, one reply after the other.

It pulls from the store and pauses when a send blocks, so a client that does not
read holds one page and no more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from .. import conf
from ..exceptions import (
    StreamClosedError,
    StreamNotFoundError,
    StreamUnavailableError,
)
from ..spans import Slice
from ..streams import Streams
from .frames import frames
from .handshake import Action, Follow, Replay, Reply
from .pace import Pace
from .protocol import Response

logger = logging.getLogger("django_streams.chat")

SendText = Callable[[str], Awaitable[None]]
SendAll = Callable[[Iterable[str]], Awaitable[None]]
Do = Callable[[Sequence[Action]], Awaitable[None]]


class Follower:
    """One task at a time; *idle* is called whenever there is nothing to show, *do*
    with what comes right after a replay."""

    def __init__(
        self,
        streams: Streams,
        send: SendText,
        send_all: SendAll,
        do: Do,
        idle: Callable[[], None],
    ) -> None:
        self._streams = streams
        self._send = send
        self._send_all = send_all
        self._do = do
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
                await self._do(job.then)

    async def _show(self, reply: Reply, job: Follow | Replay) -> None:
        replayed = 0
        if isinstance(job, Replay) or job.replay:
            status = await self._streams.astatus(reply.stream)
            replayed = status.cursor if status is not None else 0
        shown = _Shown(reply.response, job, replayed)
        if not replayed and not await self._replayed(shown):
            return
        while True:
            # A page at a time: its frames are made for all who read it.
            reader = self._streams.follower(
                reply.stream, start=shown.position, batch_size=None
            )
            try:
                while (parts := await reader.anext()) is not None:
                    if not await self._put_out(parts, shown):
                        return
                    # Who waits for news holds no page.
                    del parts
                return
            except StreamUnavailableError as error:
                logger.warning("reading %s goes on later: %s", reply.stream, error)
                await asyncio.sleep(conf.get().POLL_MAX)
            finally:
                reader.leave()

    async def _put_out(self, parts: list[Slice], shown: _Shown) -> bool:
        """Send *parts*; False if the reply was accepted again meanwhile."""
        for part in parts:
            old, new = part.split(shown.replayed)
            if old is not None:
                await self._send_part(old, shown.response.replayed, shown.base)
                shown.position = old.first + old.length
                over = shown.position == shown.replayed
                if over and not await self._replayed(shown):
                    return False
            if new is not None:
                await self._send_part(new, shown.response.live, shown.base)
                shown.position = new.first + new.length
        return True

    async def _replayed(self, shown: _Shown) -> bool:
        """What was stored has been sent. False if that is all that is wanted."""
        job = shown.job
        if isinstance(job, Follow) and job.replay:
            await self._send(shown.response.replay_complete())
        if any(later.reply == job.reply for later in self._jobs):
            # Accepted again in the middle of it.
            return False
        self._live = isinstance(job, Follow)
        return True

    async def _send_part(self, part: Slice, head: str, base: int) -> None:
        left = part.length
        for piece in frames(part, head, base):
            if self._pace.limits:
                for frame in piece:
                    await self._pace.pay(len(frame))
                    await self._send(frame)
            else:
                await self._send_all(piece)
            left -= len(piece)
            if left:
                # A socket that takes everything never gives the loop away.
                await asyncio.sleep(0)


@dataclass(slots=True)
class _Shown:
    """How far a reply has been shown."""

    response: Response
    job: Follow | Replay
    replayed: int
    """Chunks before this seq go out as a replay."""
    position: int = 0

    @property
    def base(self) -> int:
        return self.job.reply.base
