"""Calling what a user of the app wrote: ``def`` or ``async def``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ..access import off_loop


async def call(hook: Callable[..., Any], *args: Any) -> Any:
    """What *hook* returns; a plain function runs in a thread and may query.

    Cancelled: a plain hook still runs to its end.
    """
    if inspect.iscoroutinefunction(hook):
        return await hook(*args)
    result = await off_loop(functools.partial(hook, *args))
    return await result if inspect.isawaitable(result) else result
