"""The floor of everything over HTTP: an ASGI application without any framework.

It sends the bytes that the measured site sends, from memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any
from urllib.parse import parse_qsl

from django_streams import StreamChunk, codec
from django_streams.sse import encoder

from . import payload

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

BATCH = 100
"""Chunks a write during a replay, as ``sse_response`` has it."""

_waiting: list[asyncio.Future[bytes]] = []
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
            await _follow(send)
        case "/produce":
            _produce(int(query["events"]), float(query["interval"]))
        case "/replay":
            await _replay(send, int(query["count"]), int(query["size"]))
        case "/resume":
            seen = dict(scope["headers"]).get(b"last-event-id", b"-1")
            await _resume(send, int(query["count"]), int(seen) + 1)
    await send({"type": "http.response.body", "body": b""})


async def _write(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _follow(send: Send) -> None:
    await _write(send, encoder.up_to_date())
    loop = asyncio.get_running_loop()
    while True:
        news: asyncio.Future[bytes] = loop.create_future()
        _waiting.append(news)
        await _write(send, await news)


def _produce(events: int, interval: float) -> None:
    task = asyncio.get_running_loop().create_task(_broadcast(events, interval))
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _broadcast(events: int, interval: float) -> None:
    for number in range(events):
        await asyncio.sleep(interval)
        text = codec.encode(payload.stamped(time.monotonic(), number))
        (data,) = encoder.encode_chunks([StreamChunk(number, text)])
        waiting = _waiting[:]
        _waiting.clear()
        for news in waiting:
            if not news.done():
                news.set_result(data)


async def _replay(send: Send, count: int, size: int) -> None:
    for data in writes(count, size):
        await _write(send, data)
    await _write(send, encoder.done(count))


async def _resume(send: Send, count: int, start: int) -> None:
    chunks = _chunks(count, payload.CHUNK)
    for first in range(start, count, BATCH):
        for data in encoder.encode_chunks(chunks[first : first + BATCH]):
            await _write(send, data)
    await _write(send, encoder.up_to_date())
    await asyncio.Event().wait()


@cache
def _chunks(count: int, size: int) -> list[StreamChunk]:
    return [StreamChunk(*pair) for pair in enumerate(payload.texts(count, size))]


@cache
def writes(count: int, size: int) -> list[bytes]:
    """The events of :func:`payload.texts`, in the writes of a replay."""
    chunks = _chunks(count, size)
    return [
        data
        for first in range(0, count, BATCH)
        for data in encoder.encode_chunks(chunks[first : first + BATCH])
    ]
