"""One life of a channel layer in one event loop, until something fails."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterable
from itertools import islice
from typing import Any, Protocol, TypeAlias

from .. import conf
from .local import LocalWaker
from .marks import Marks
from .thread import LoopThread

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""Calls to the layer on their way together; each holds a connection of Redis."""

SEND_GAP = 0.01
"""Seconds between two rounds of sending. The first wake after a pause leaves at
once; a busy producer's are joined, which leaves it the processor."""

REST = 2
"""Times the processor time of a round that is rest after it: sending takes a
third of one processor at most. A follower of a busy stream polls every POLL_MIN,
so wakes that wait longer than that would have come too late anyway."""

PROBE_EVERY = 4.0
"""Seconds between two messages to oneself. Less than five, so that ``receive()``
of channels-redis never idles into the read timeout that redis-py 8 has."""

RENEW_EVERY = 300.0
"""Seconds between two renewals of all memberships: one shard of several, or one
evicted group, is not seen by the probe. Less if the layer forgets sooner."""


Call: TypeAlias = Callable[[str], Coroutine[Any, Any, None]]


class Layer(Protocol):
    """What is used of a channel layer."""

    async def new_channel(self) -> str: ...
    async def receive(self, channel: str) -> Any: ...
    async def group_add(self, group: str, channel: str) -> None: ...
    async def group_discard(self, group: str, channel: str) -> None: ...
    async def group_send(self, group: str, message: dict[str, Any]) -> None: ...


class LayerError(Exception):
    """A layer took a message and did not give it back."""


def group_name(key: str) -> str:
    """The group of a key; a layer takes ASCII without ``:``, below 100."""
    return f"ds.{key}"


class LayerSession:
    """Sends what is marked, and hears for those who follow.

    Receiving starts with the first follower: a process that only produces has
    no channel. Any failure, silence included, ends the session as an exception;
    the thread makes the next one with a layer and a loop of its own.
    """

    def __init__(
        self, layer: Layer, marks: Marks, local: LocalWaker, thread: LoopThread
    ) -> None:
        self._layer = layer
        self._marks = marks
        self._local = local
        self._thread = thread
        self._timeout = conf.get().WAKE_TIMEOUT
        # Names this end in its messages, and is the key of a group of its own.
        self._me = secrets.token_hex(16)
        self._channel = ""
        self._joined: set[str] = set()
        self._to_send = asyncio.Event()
        self._to_join = asyncio.Event()
        self._closing = asyncio.Event()
        self._heard = asyncio.Event()
        self._heard_me = asyncio.Event()

    def look(self) -> None:
        self._to_send.set()
        self._to_join.set()
        if self._thread.closing:
            self._closing.set()

    async def run(self) -> None:
        self.look()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            ears = tasks.create_task(self._hear())
            await self._closing.wait()
            ears.cancel()
        await self._leave()

    async def _send(self) -> None:
        """Send pending keys round by round; ends when closing and none is left."""
        while True:
            self._to_send.clear()
            keys = self._marks.take_pending()
            if keys:
                began = time.thread_time()
                try:
                    await self._each(self._send_wake, keys)
                except BaseException:
                    # Not worth losing: the next session sends them.
                    for key in keys:
                        self._marks.send(key)
                    raise
                if not self._marks.followed():
                    self._thread.works()
                spent = time.thread_time() - began
                await asyncio.sleep(max(SEND_GAP, REST * spent))
            elif self._closing.is_set():
                return
            else:
                await self._to_send.wait()

    async def _send_wake(self, key: str) -> None:
        message = {"type": "ds.wake", "key": key, "by": self._me}
        await self._layer.group_send(group_name(key), message)

    async def _hear(self) -> None:
        """From the first follower on: receive, join and leave groups, probe."""
        while not self._marks.followed():
            self._to_join.clear()
            await self._to_join.wait()
        async with asyncio.timeout(self._timeout):
            self._channel = await self._layer.new_channel()
            await self._layer.group_add(group_name(self._me), self._channel)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive())
            tasks.create_task(self._join())
            tasks.create_task(self._probe())

    async def _receive(self) -> None:
        while True:
            message = await self._layer.receive(self._channel)
            self._heard.set()
            match message:
                case {"key": self._me}:
                    self._heard_me.set()
                case {"by": self._me}:
                    pass  # heard here before it left
                case {"key": str(key)}:
                    self._local.wake(key)

    async def _join(self) -> None:
        """Keep the memberships as the followers are; wake what was joined."""
        changed = self._marks.followed()
        while True:
            await self._each(self._adjust, changed)
            await self._to_join.wait()
            self._to_join.clear()
            changed = self._marks.take_changed()

    async def _adjust(self, key: str) -> None:
        joined = key in self._joined
        if self._marks.follows(key) and not joined:
            await self._layer.group_add(group_name(key), self._channel)
            self._joined.add(key)
            # What was appended between a reader's first look and this moment.
            self._local.wake(key)
        elif joined and not self._marks.follows(key):
            self._joined.discard(key)
            await self._layer.group_discard(group_name(key), self._channel)

    async def _probe(self) -> None:
        """Send to oneself what must come back: nothing else shows a dead layer.

        ``receive()`` waits for ever on a connection whose other side is gone,
        and a Redis that was restarted has forgotten every group.
        """
        forgets = getattr(self._layer, "group_expiry", 3 * RENEW_EVERY)
        renew_every = min(RENEW_EVERY, forgets / 3)
        renewed = time.monotonic()
        while True:
            self._heard.clear()
            self._heard_me.clear()
            async with asyncio.timeout(self._timeout):
                await self._send_wake(self._me)
            lost = False
            try:
                async with asyncio.timeout(self._timeout):
                    await self._heard_me.wait()
            except TimeoutError:
                # Other messages came: alive, but full or forgetful.
                lost = True
                if not self._heard.is_set():
                    raise LayerError(
                        f"a message to oneself did not come back in {self._timeout} s"
                    ) from None
            self._thread.works()
            if lost or time.monotonic() - renewed > renew_every:
                renewed = time.monotonic()
                await self._renew()
            await asyncio.sleep(min(PROBE_EVERY, renew_every))

    async def _renew(self) -> None:
        """Add every membership again; the groups may have been forgotten."""
        async with asyncio.timeout(self._timeout):
            await self._layer.group_add(group_name(self._me), self._channel)
        await self._each(self._renew_one, list(self._joined))

    async def _renew_one(self, key: str) -> None:
        await self._layer.group_add(group_name(key), self._channel)
        if key in self._joined:
            self._local.wake(key)
        else:
            # It was left while this call was on its way.
            await self._layer.group_discard(group_name(key), self._channel)

    async def _leave(self) -> None:
        """Take the channel out of its groups, as far as that goes in the time."""
        try:
            async with asyncio.timeout(self._timeout):
                for key in [self._me, *self._joined] if self._channel else ():
                    await self._layer.group_discard(group_name(key), self._channel)
        except Exception:
            logger.debug("Groups were left behind", exc_info=True)

    async def _each(self, call: Call, keys: Iterable[str]) -> None:
        """Await *call* for each key, ``AT_ONCE`` at a time, within the timeout."""
        waiting = iter(keys)
        while batch := list(islice(waiting, AT_ONCE)):
            async with asyncio.timeout(self._timeout):
                if len(batch) == 1:
                    await call(batch[0])
                    continue
                async with asyncio.TaskGroup() as tasks:
                    for key in batch:
                        tasks.create_task(call(key))
