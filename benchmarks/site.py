"""The measured site: event streams, and producers in the server's own process."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.http import HttpRequest, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path

from django_streams import Streams, StreamWriter, sse_response

from .payload import chunks, stamped

STREAMS = Streams(using="postgresql")
HEADERS = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}

_writers: dict[str, StreamWriter] = {}
_tasks: dict[str, asyncio.Task[Any]] = {}
_queries = Counter[str]()


async def events(request: HttpRequest, stream_id: str) -> HttpResponseBase:
    """A stream as server-sent events."""
    return await sse_response(STREAMS, stream_id, request=request)


async def bare(request: HttpRequest) -> HttpResponseBase:
    """The floor of an idle reader: Django's own streaming response."""
    return StreamingHttpResponse(
        _silence(), content_type="text/event-stream", headers=HEADERS
    )


async def _silence() -> AsyncIterator[bytes]:
    yield b"event: up-to-date\ndata: {}\n\n"
    await asyncio.Event().wait()


async def open_stream(request: HttpRequest, stream_id: str) -> JsonResponse:
    """Open a writer here, for the views below."""
    _writers[stream_id] = await STREAMS.aopen(stream_id)
    return JsonResponse({})


async def produce(request: HttpRequest, stream_id: str) -> JsonResponse:
    """Append ``?events=`` stamped chunks, one each ``?interval=`` seconds."""
    events, interval = int(request.GET["events"]), float(request.GET["interval"])
    _start(stream_id, _produce(_writers[stream_id], events, interval))
    return JsonResponse({})


async def _produce(writer: StreamWriter, events: int, interval: float) -> None:
    for number in range(events):
        await asyncio.sleep(interval)
        await writer.aappend(stamped(time.monotonic(), number))


async def append_on(request: HttpRequest, stream_id: str) -> JsonResponse:
    """Append without a pause until ``append_off``."""
    _start(stream_id, _append_for_ever(_writers[stream_id], []))
    return JsonResponse({})


async def append_off(request: HttpRequest, stream_id: str) -> JsonResponse:
    """Stop; the longest append meanwhile, in seconds, and how many there were."""
    task = _tasks.pop(stream_id)
    task.cancel()
    seconds = await task
    return JsonResponse({"longest": max(seconds), "count": len(seconds)})


async def _append_for_ever(writer: StreamWriter, seconds: list[float]) -> list[float]:
    some = chunks(100)
    try:
        while True:
            start = time.perf_counter()
            await writer.aappend(some[len(seconds) % 100])
            seconds.append(time.perf_counter() - start)
    except asyncio.CancelledError:
        # The view that stopped it asks for what it measured.
        return seconds


def _start(name: str, work: Coroutine[Any, Any, Any]) -> None:
    # Kept, and without the request's context, which ends before it.
    _tasks[name] = asyncio.get_running_loop().create_task(
        work, context=contextvars.Context()
    )


async def queries(request: HttpRequest) -> JsonResponse:
    """Queries since the last call, by thread and statement."""
    counted = dict(_queries)
    _queries.clear()
    return JsonResponse(counted)


def count_queries(sender: object, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Count what each new connection is asked; it counts beside all threads."""

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        _queries[f"{threading.current_thread().name}: {sql[:60]}"] += 1
        return execute(sql, *rest)

    connection.execute_wrappers.append(count)


connection_created.connect(count_queries)

urlpatterns: list[URLPattern] = [
    path("events/<str:stream_id>", events),
    path("bare", bare),
    path("open/<str:stream_id>", open_stream),
    path("produce/<str:stream_id>", produce),
    path("append/<str:stream_id>/on", append_on),
    path("append/<str:stream_id>/off", append_off),
    path("queries", queries),
]
