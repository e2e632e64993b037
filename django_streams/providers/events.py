"""The events of a client's stream, however the client gives it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from ..threads import from_thread


async def events(stream: Any) -> AsyncGenerator[Any, None]:
    """The events of *stream*: it is entered, read, and closed in the end.

    That of a blocking client is entered, read and closed in a thread.
    """
    if not hasattr(stream, "__aenter__"):
        async with aclosing(from_thread(_within(stream))) as source:
            async for event in source:
                yield event
        return
    async with stream as entered:
        async for event in entered:
            yield event


def _within(stream: Any) -> Iterator[Any]:
    with stream as entered:
        yield from entered
