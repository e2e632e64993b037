"""Whatever a handler returns, as one asynchronous iterator."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing
from typing import Any, TypeAlias

from .. import providers
from ..threads import from_thread

Item: TypeAlias = str | dict[str, Any]


async def call(handler: Callable[[Any], Any], turn: Any) -> Any:
    """What the handler returns for *turn*: an (async) iterable, a string, None.

    An async generator is handed over unstarted. A plain function runs in a
    thread, for it may block.
    """
    if inspect.isasyncgenfunction(handler):
        return handler(turn)
    if inspect.iscoroutinefunction(handler):
        return await handler(turn)
    result = await asyncio.to_thread(handler, turn)
    return await result if inspect.isawaitable(result) else result


async def items(result: Any) -> AsyncGenerator[Item, None]:
    """The strings and chunks of a result that is not None.

    Closing it closes what it iterates. Raises ``TypeError`` for a result that
    is none of the kinds a handler may return.
    """
    adapted = None if isinstance(result, (str, dict)) else providers.adapt(result)
    if isinstance(result, (str, dict)):
        yield result
    elif adapted is not None:
        async with aclosing(items(adapted)) as source:
            async for item in source:
                yield item
    elif isinstance(result, AsyncGenerator):
        async with aclosing(result):
            async for item in result:
                yield item
    elif isinstance(result, AsyncIterable):
        async for item in result:
            yield item
    elif isinstance(result, (list, tuple)):
        for item in result:
            yield item
    elif isinstance(result, Iterable):
        async with aclosing(from_thread(result)) as source:
            async for item in source:
                yield item
    else:
        raise TypeError(
            "on_chat_message returns a string, an (async) iterable of strings and "
            f"chunks, or None; got {type(result).__name__}"
        )
