"""One truth, two doors: how a method gets its async twin.

The work is written once, synchronously. :func:`sync_door` guards it against
being called on a running event loop, :func:`async_door` makes the twin that
runs it on one of the store's threads.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from .exceptions import StreamUsageError

P = ParamSpec("P")
R = TypeVar("R")


class RunsInThread(Protocol):
    """What :func:`async_door` needs of an object: a way off the event loop."""

    def _run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> Awaitable[R]:
        """Await *work* on a thread that may use the database."""

    def _run_waiting(
        self, work: Callable[..., R], *args: Any, **kwargs: Any
    ) -> Awaitable[R]:
        """The same for what may wait for a row that somebody holds."""


S = TypeVar("S", bound=RunsInThread)


def refuse_running_loop(name: str, instead: str | None = None) -> None:
    """Raise :class:`StreamUsageError` when called on a running event loop.

    It would block every connection of the process. As in Django,
    ``DJANGO_ALLOW_ASYNC_UNSAFE`` turns the guard off.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise StreamUsageError(
            f"{name}() blocks and was called on a running event loop; "
            f"use `{instead or f'await a{name}()'}` there"
        )


def sync_door(work: Callable[P, R]) -> Callable[P, R]:
    """The method itself, refusing to block an event loop."""
    name = work.__name__

    @functools.wraps(work)
    def door(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_running_loop(name)
        return work(*args, **kwargs)

    return door


def async_door(
    door: Callable[Concatenate[S, P], R], *, cancelled: str, waits: bool = False
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The async twin of a sync door; *cancelled* says what a cancel leaves.

    *waits*: it writes, and so may wait for a row that somebody holds.
    """
    work: Callable[..., R] = getattr(door, "__wrapped__", door)

    @functools.wraps(work)
    async def twin(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        run = self._run_waiting if waits else self._run
        return await run(work, self, *args, **kwargs)

    name = work.__name__
    twin.__name__ = "a" + name
    twin.__qualname__ = work.__qualname__.removesuffix(name) + "a" + name
    twin.__doc__ = f"Async twin of :meth:`{name}`. Cancelled: {cancelled}"
    del twin.__wrapped__
    twin.__signature__ = _signature(work)  # type: ignore[attr-defined]
    return twin


def _signature(work: Callable[..., Any]) -> Any:
    import inspect

    return inspect.signature(work)
