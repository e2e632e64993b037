"""Pages of a replay that are read while earlier ones are being sent.

A page takes its time on the way from the database, most of it waiting. Two on
their way keep the client's connection busy; more would only be memory, since a
client that does not read holds them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from .spans import Slice

_DEPTH = 2


class Read(NamedTuple):
    """What a look at the store gave, as :meth:`Tail.feed` takes it."""

    parts: list[Slice]
    cursor: int | None
    settled: bool

    def next(self, position: int) -> int | None:
        """Where the page after this one, asked for at *position*, begins."""
        end = self.parts[-1].first + self.parts[-1].length if self.parts else position
        return end if self.cursor is not None and position < end < self.cursor else None


class ReadAhead:
    """Used on one loop. *start* begins to read a page; *wanted* says whether the
    page at a position is one to read ahead."""

    def __init__(
        self, start: Callable[[int], Future[Read]], wanted: Callable[[int], bool]
    ) -> None:
        self._start = start
        self._wanted = wanted
        self._pages: deque[tuple[int, asyncio.Future[Read]]] = deque()

    def begin(self, position: int) -> None:
        """Read on from *position*, unless it is being done."""
        if not self._pages and self._wanted(position):
            self._add(position)

    async def take(self, position: int) -> Read | None:
        """The page at *position*; None if it was not read ahead.

        Raises what reading it raised. Cancelled: it is read again when asked for.
        """
        if not self._pages:
            return None
        first, page = self._pages[0]
        if first != position:
            # Somebody gave a page up, so what follows has no place.
            self.stop()
            return None
        try:
            read = await page
        except BaseException:
            self.stop()
            raise
        self._pages.popleft()
        self._top_up()
        return read

    def stop(self) -> None:
        """Forget what is on its way."""
        for _, page in self._pages:
            page.cancel()
        self._pages.clear()

    def _add(self, position: int) -> None:
        page = asyncio.wrap_future(self._start(position))
        self._pages.append((position, page))
        page.add_done_callback(self._came)

    def _came(self, page: asyncio.Future[Read]) -> None:
        # Whoever takes it hears of its failure; nobody may ever take it.
        if not page.cancelled() and page.exception() is None:
            self._top_up()

    def _top_up(self) -> None:
        """Begin the page after the last one, once that has come."""
        if not self._pages or len(self._pages) == _DEPTH:
            return
        position, page = self._pages[-1]
        if not page.done() or page.cancelled() or page.exception() is not None:
            return
        following = page.result().next(position)
        if following is not None and self._wanted(following):
            self._add(following)
