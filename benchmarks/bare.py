"""The floor of everything over HTTP: an ASGI application without any framework.

It sends the bytes that the measured site sends, from memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from django_streams import codec
from django_streams.spans import Slice, Span
from django_streams.sse import encoder

from . import payload

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BATCH = 100
"""Chunks a write during a replay, as ``sse_response`` has it."""

_waiting: set[asyncio.Future[bytes]] = set()
_tasks: set[asyncio.Task[None]] = set()


async def application(
    scope: MutableMapping[str, Any], receive: Receive, send: Send
) -> None:
    query = dict(parse_qsl(scope["query_string"].decode()))
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                (b"content-type", b"text/event-stream; charset=utf-8"),
                (b"cache-control", b"no-store, no-transform"),
                (b"x-accel-buffering", b"no"),
            ],
        }
    )
    match scope["path"]:
        case "/events":
            await _until_gone(receive, _follow(send))
        case "/produce":
            _produce(int(query["events"]), float(query["interval"]))
        case "/replay":
            await _replay(send, int(query["count"]), int(query["size"]))
        case "/resume":
            seen = dict(scope["headers"]).get(b"last-event-id", b"-1")
            resumed = _resume(send, int(query["count"]), int(seen) + 1)
            await _until_gone(receive, resumed)
    await send({"type": "http.response.body", "body": b""})


async def _until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run *work* until the client goes; readers of the last run cost nothing."""
    task = asyncio.get_running_loop().create_task(work)
    while (await receive())["type"] != "http.disconnect":
        pass
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _follow(send: Send) -> None:
    await _write(send, encoder.up_to_date())
    loop = asyncio.get_running_loop()
    while True:
        news: asyncio.Future[bytes] = loop.create_future()
        _waiting.add(news)
        try:
            data = await news
        finally:
            _waiting.discard(news)
        await _write(send, data)


def _produce(events: int, interval: float) -> None:
    task = asyncio.get_running_loop().create_task(_broadcast(events, interval))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _broadcast(events: int, interval: float) -> None:
    for number in range(events):
        await asyncio.sleep(interval)
        text = codec.encode(payload.stamped(time.monotonic(), number))
        (data,) = encoder.encode([Span(number, [text]).after(number)])
        for news in _waiting:
            # Cancelled, but its task has not run since: a client just left.
            if not news.done():
                news.set_result(data)
        _waiting.clear()


async def _replay(send: Send, count: int, size: int) -> None:
    for data in writes(count, size):
        await _write(send, data)
    await _write(send, encoder.done(count))


async def _resume(send: Send, count: int, start: int) -> None:
    for data in _writes(_span(count, payload.CHUNK), start):
        await _write(send, data)
    await _write(send, encoder.up_to_date())
    await asyncio.Event().wait()


@cache
def _span(count: int, size: int) -> Span:
    return Span(0, payload.texts(count, size))


@cache
def writes(count: int, size: int) -> list[bytes]:
    """The events of :func:`payload.texts`, in the writes of a replay."""
    return list(_writes(_span(count, size), 0))


def _writes(span: Span, start: int) -> Iterator[bytes]:
    for first in range(start, span.end, BATCH):
        yield from encoder.encode([Slice(span, first, min(first + BATCH, span.end))])
