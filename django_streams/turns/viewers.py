"""The connections of one event loop that watch conversations whose agents ask
(``when_unwatched``): one task says for all of them that they are still there.

Nothing here runs, and no row is written, for agents that do not ask.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from dataclasses import dataclass

from .. import conf, ids
from . import door, presence
from .records import ConversationRef

logger = logging.getLogger("django_streams.turns")

_BEATS_PER_TTL = 3
"""Two may fail before the process counts as dead."""


@dataclass(eq=False)
class Viewer:
    """One connection that watches, until :meth:`leave`."""

    ref: ConversationRef
    connection: str
    viewers: Viewers
    stored: bool = False
    left: bool = False

    async def confirm(self) -> None:
        """Store that it watches, if that could not be done yet.

        For a conversation that gets its row only now. What fails is tried again
        with the next beat. Cancelled: it may be stored.
        """
        if not self.stored and not self.left:
            await self.viewers.store(self)

    async def leave(self) -> None:
        """It watches no more. What fails is tried again; cancelled, it may count
        as watching for another ``PRESENCE_TTL``."""
        self.left = True
        await self.viewers.remove(self)


class Viewers:
    """Of one loop; there is no task while nobody watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Of this loop alone: another one of the process, or a fork, is another.
        self._process = f"{os.getpid()}.{ids.new_id()}"
        self._here: dict[str, Viewer] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def viewer(self, ref: ConversationRef, connection: str) -> Viewer:
        """*connection* watches from now on, once that is confirmed."""
        viewer = self._here[connection] = Viewer(ref, connection, self)
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(
                self._run(), context=contextvars.Context()
            )
        return viewer

    async def store(self, viewer: Viewer) -> None:
        ttl = conf.get().PRESENCE_TTL
        try:
            viewer.stored = await door.run(
                presence.enter, viewer.ref, viewer.connection, self._process, ttl
            )
        except Exception as error:
            logger.warning("that somebody watches is not stored yet: %s", error)
        else:
            if viewer.left:
                # It left while this was stored.
                await self.remove(viewer)

    async def remove(self, viewer: Viewer) -> None:
        try:
            await door.run(presence.leave, viewer.ref, viewer.connection)
        except Exception as error:
            # Without a beat its row expires.
            logger.warning("that somebody left is not stored: %s", error)
        finally:
            self._here.pop(viewer.connection, None)
            self._changed.set()

    async def _run(self) -> None:
        while self._here:
            self._changed.clear()
            try:
                async with asyncio.timeout(conf.get().PRESENCE_TTL / _BEATS_PER_TTL):
                    await self._changed.wait()
                continue
            except TimeoutError:
                pass
            await self._beat()

    async def _beat(self) -> None:
        here = [viewer for viewer in self._here.values() if not viewer.left]
        names = [viewer.connection for viewer in here]
        try:
            seen = await door.run(presence.beat, names, self._process)
        except Exception as error:
            logger.warning("that %d watch is not stored: %s", len(here), error)
            return
        for viewer in here:
            if viewer.connection not in seen and not viewer.left:
                # Its conversation is new, or it was taken for dead.
                await self.store(viewer)


_all: dict[asyncio.AbstractEventLoop, Viewers] = {}


def get_viewers() -> Viewers:
    """Those of the running loop."""
    loop = asyncio.get_running_loop()
    found = _all.get(loop)
    if found is None:
        for other in [known for known in _all if known.is_closed()]:
            del _all[other]
        found = _all[loop] = Viewers(loop)
    return found
