"""Waiting for conditions with a deadline, and work in threads of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from django.db import connections

T = TypeVar("T")

WITHIN = 10.0
"""Seconds after which something that must happen counts as not happening."""

_STEP = 0.005


def eventually(condition: Callable[[], T], within: float = WITHIN) -> T:
    """The first true result of *condition*; AssertionError after *within*."""
    deadline = time.monotonic() + within
    while not (result := condition()):
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(_STEP)
    return result


async def aeventually(condition: Callable[[], Any], within: float = WITHIN) -> Any:
    """As :func:`eventually`; *condition* may return an awaitable."""
    deadline = time.monotonic() + within
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return result
        assert time.monotonic() < deadline, f"not within {within} s"
        await asyncio.sleep(_STEP)


def holds(condition: Callable[[], Any], seconds: float = 0.15) -> bool:
    """Whether *condition* stays true; several polls long, to show an absence."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not condition():
            return False
        time.sleep(_STEP)
    return True


def in_thread(work: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """Start *work* in a thread with database connections of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = work(*args, **kwargs)
        except BaseException as error:
            connections.close_all()
            future.set_exception(error)
        else:
            connections.close_all()
            future.set_result(result)

    threading.Thread(target=run, name=getattr(work, "__name__", "work")).start()
    return future


async def outside(work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Run synchronous *work* beside the loop."""
    return await asyncio.wrap_future(in_thread(work, *args, **kwargs))
