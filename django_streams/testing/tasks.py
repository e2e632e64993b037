"""The library's own tasks on an event loop: a test ends when they have."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

from .errors import ClientError

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_KIT = str(Path(__file__).resolve().parent)

BY_THEMSELVES = 2.0
"""Seconds that tasks get to end before they are cancelled; it takes them
milliseconds, unless somebody's handler runs on."""


def running() -> set[asyncio.Task[Any]]:
    """The library's tasks on the running loop, without the current one."""
    me = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not me and _is_ours(task)}


def _is_ours(task: asyncio.Task[Any]) -> bool:
    work: Any = task.get_coro()
    code = getattr(work, "cr_code", None) or getattr(work, "ag_code", None)
    if code is None:
        return False
    file = inspect.getfile(code)
    return file.startswith(_PACKAGE) and not file.startswith(_KIT)


async def end(timeout: float, *, patience: float = BY_THEMSELVES) -> None:
    """Return when none is left: what does not end by itself within *patience*
    seconds is cancelled.

    A turn that is cancelled so is left as by a process that stops: what it said
    is stored, and another process could go on with it. Raises
    :class:`ClientError` for what does not even end then.
    """
    if await _gone(patience):
        return
    for task in running():
        task.cancel()
    if not await _gone(timeout):
        names = sorted(repr(task.get_coro()) for task in running())
        raise ClientError(
            f"{timeout:g} s after they were cancelled there still run: "
            + ", ".join(names)
            + "; does a handler swallow CancelledError?"
        )


async def _gone(seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while some := running():
                # A task may start another one before it ends.
                await asyncio.wait(some)
    except TimeoutError:
        return not running()
    return True
