"""Waiting until something is true of a conversation, through both doors.

A wake makes the waiter look at once; the poll is enough without one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .. import conf
from ..exceptions import StreamUsageError
from ..store import get_store
from ..wake import get_waker
from . import door
from .records import ConversationRef
from .watch import get_watch

R = TypeVar("R")


def wait(
    ref: ConversationRef,
    look: Callable[[], R | None],
    timeout: float | None,
    *,
    every: float | None = None,
) -> R:
    """Call *look* until it gives something; blocks.

    *every* is the longest pause in seconds, POLL_MAX by default. Raises
    ``TimeoutError`` after *timeout* seconds, and :class:`StreamUsageError` inside
    a transaction, which would hide from others what it waits for.
    """
    if get_store(door.alias()).in_atomic():
        raise StreamUsageError(
            "this waits for a turn and was called inside atomic(): what was queued "
            "there is not to be seen until it ends; call it after the block"
        )
    news = threading.Event()
    unlisten = get_waker().listen(ref.wake_key, news.set)
    end = None if timeout is None else time.monotonic() + timeout
    pause, longest = conf.get().POLL_MIN, every or conf.get().POLL_MAX
    try:
        while True:
            news.clear()
            found = door.call(look)
            if found is not None:
                return found
            left = longest if end is None else end - time.monotonic()
            if left <= 0:
                raise TimeoutError(_too_long(timeout))
            news.wait(min(pause, longest, left))
            pause *= 2
    finally:
        unlisten()


async def await_(
    ref: ConversationRef,
    look: Callable[[], R | None],
    timeout: float | None,
    *,
    every: float | None = None,
) -> R:
    """Async twin of :func:`wait`. Cancelled: nothing is left behind."""
    news = asyncio.Event()
    following = get_watch().follow(ref, news.set)
    try:
        async with asyncio.timeout(timeout):
            while True:
                news.clear()
                found = await door.run(look)
                if found is not None:
                    return found
                try:
                    async with asyncio.timeout(every or conf.get().POLL_MAX):
                        await news.wait()
                except TimeoutError:
                    pass
    except TimeoutError:
        raise TimeoutError(_too_long(timeout)) from None
    finally:
        following.close()


def _too_long(timeout: float | None) -> str:
    return (
        f"it took longer than {timeout:g} s; what was queued stays queued, and "
        "somebody has to run it: a server process of the agent or run_turns"
    )
