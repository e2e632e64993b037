"""What one client is sent: a frame at a time, and nothing once it has gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

logger = logging.getLogger("django_streams.chat")


class Gone(Exception):
    """The socket takes no more frames."""


class Outbox:
    """*send* sends one text frame; *gone* is called when the client has gone."""

    def __init__(
        self, send: Callable[[str], Awaitable[None]], gone: Callable[[], None]
    ) -> None:
        self._send = send
        self._tell_gone = gone
        # Frames of the pump, the follower and calls: first come, first served.
        self._order = asyncio.Lock()
        self._sending: asyncio.Timeout | None = None
        self.gone = False

    async def send(self, text: str) -> None:
        """Send *text*. Nothing is raised: who handles a frame finishes it, also
        when nobody can be told."""
        async with self._order:
            if self.gone:
                return
            try:
                async with asyncio.timeout(None) as limit:
                    self._sending = limit
                    try:
                        await self._send(text)
                    finally:
                        self._sending = None
            except Exception as error:
                logger.debug("the socket takes nothing more: %r", error)
                self.close()

    async def send_all(self, texts: Iterable[str]) -> None:
        """Send *texts*, which are a reply's; others' frames may come between.

        Raises :class:`Gone`, for there is no use in reading on.
        """
        for text in texts:
            async with self._order:
                if self.gone:
                    raise Gone
                try:
                    await self._send(text)
                except Exception as error:
                    self.close()
                    raise Gone from error

    def close(self) -> None:
        """The client has gone: send nothing more, and wait for no send."""
        if self.gone:
            return
        self.gone = True
        if self._sending is not None:
            self._sending.reschedule(asyncio.get_running_loop().time())
        self._tell_gone()
