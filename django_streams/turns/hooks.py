"""Calling what a user of the app wrote: ``def`` or ``async def``."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

from asgiref.sync import async_to_sync

from .. import codec
from ..access import off_loop
from ..exceptions import PublicError
from ..failures import contained
from ..messages import sanitise
from ..messages.valid import is_message
from .agents import Agent
from .conversations import NO_LIMIT
from .records import UIMessage

logger = logging.getLogger("django_streams.turns")

SAVE_FAILED = "Failed to save the response."
"""What clients read when a message could not be stored."""


async def call(hook: Callable[..., Any], *args: Any) -> Any:
    """What *hook* returns; a plain function runs in a thread and may query.

    Cancelled: a plain hook still runs to its end.
    """
    with contained():
        if inspect.iscoroutinefunction(hook):
            return await hook(*args)
        result = await off_loop(functools.partial(hook, *args))
        return await result if inspect.isawaitable(result) else result


async def sanitised(agent: Agent, messages: Sequence[UIMessage]) -> list[UIMessage]:
    """What is stored of *messages*: without what never is, and then what the
    agent's ``sanitize_message`` makes of each. Id and role stay.

    Raises ``PublicError`` when the hook raises, which is logged, or returns what
    is no message or not JSON: then nothing may be stored.
    """
    clean = [sanitise(message) for message in messages]
    hook = agent.sanitize_message
    try:
        if inspect.iscoroutinefunction(hook):
            results = [await hook(message) for message in clean]
        else:
            # All in one thread: a client sends its whole conversation each time.
            results = await off_loop(lambda: [hook(message) for message in clean])
        return [
            _checked(message, await result if inspect.isawaitable(result) else result)
            for message, result in zip(clean, results, strict=True)
        ]
    except Exception as error:
        logger.exception("sanitize_message of %s failed", type(agent).__name__)
        raise PublicError(SAVE_FAILED) from error


def _checked(message: UIMessage, result: Any) -> UIMessage:
    if isinstance(result, dict) and result is not message:
        result = result | {"id": message["id"], "role": message["role"]}
        codec.encode(result, limit=NO_LIMIT, what="message")
    if not is_message(result):
        raise TypeError(
            "sanitize_message returns the message to store; got "
            f"{type(result).__name__}: {str(result)[:80]}"
        )
    return result


def call_sync(hook: Callable[..., Any], *args: Any) -> Any:
    """What *hook* returns, for who blocks: an async one gets a loop of its own."""
    result = hook(*args)
    return async_to_sync(_awaited)(result) if inspect.isawaitable(result) else result


async def _awaited(result: Any) -> Any:
    return await result
