"""What a client sent and nobody has looked at: bounded, in order, not too fast."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from .. import conf
from . import protocol
from .rate import Rate

WAITING: Final = 64
"""Frames that wait to be handled; then the client's next one is not read."""

LARGE: Final = 65_536
"""Frames of so many characters are parsed in a thread: 1 MiB takes 25 ms, in
which no other connection of the loop would be served."""


class Inbox:
    """*news* is called when there is a frame to take, or there never will be."""

    def __init__(self, news: Callable[[], None]) -> None:
        self._news = news
        self._texts: deque[str | None] = deque()
        self._room = asyncio.Event()
        self._closed = False
        self._rate = Rate(conf.get().CHAT_FRAME_RATE)
        self.flooded = False
        """The client sends faster than it may; nothing more is taken."""

    def __len__(self) -> int:
        return len(self._texts)

    async def put(self, text: str | None) -> None:
        """Take a frame; waits while too many are unhandled."""
        while len(self._texts) >= WAITING and not self._closed:
            self._room.clear()
            await self._room.wait()
        if self._closed or self.flooded:
            return
        if self._rate.allows(asyncio.get_running_loop().time()):
            self._texts.append(text)
        else:
            self.flooded = True
        self._news()

    async def take(self) -> protocol.Frame | None:
        """The oldest frame, or None; it is gone whatever becomes of it."""
        if not self._texts:
            return None
        text = self._texts.popleft()
        self._room.set()
        limits = conf.get()
        chars, depth = limits.CHAT_FRAME_CHARS, limits.CHAT_FRAME_DEPTH
        if text is None or not LARGE <= len(text) <= chars:
            return protocol.parse(text, max_chars=chars, max_depth=depth)
        return await asyncio.to_thread(
            protocol.parse, text, max_chars=chars, max_depth=depth
        )

    def close(self) -> None:
        """Take nothing more, and let go who waits to put something in."""
        self._closed = True
        self._texts.clear()
        self._room.set()
