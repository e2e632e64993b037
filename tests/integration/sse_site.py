"""The live site of the event stream tests: urls, views and an old middleware.

Appends are made inside the server, by request, so that wakes need no layer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver, include, path

from django_streams import Streams, StreamWriter, conf, sse_response
from django_streams.feed import get_hub
from django_streams.http.views import never_atomic
from django_streams.sse.response import SSEResponse, server_buffers

PACKAGE = Path(conf.__file__).parent
GENERATORS = Counter[str]()
QUERIES = Counter[str]()
"""By what asked, and the beginning of the statement."""
WRITERS: dict[str, StreamWriter] = {}

Handler = Callable[[HttpRequest], HttpResponseBase]


def old_middleware(get_response: Handler) -> Handler:
    """Synchronous, and it puts a generator around what it is given."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if isinstance(response, SSEResponse):
            content = response.streaming_content

            def wrapped() -> object:
                yield from content  # type: ignore[misc]

            response.streaming_content = wrapped()
        response["X-Old"] = "yes"
        return response

    return middleware


def streams() -> Streams:
    return Streams(using=conf.get().DATABASE)


async def act(request: HttpRequest, what: str, stream_id: str) -> HttpResponse:
    """``open``, ``append`` (each ``?text=``), ``close``, ``error``, ``delete``."""
    values = request.GET.getlist("text")
    if what == "open":
        owner = request.GET.get("owner")
        WRITERS[stream_id] = await streams().aopen(stream_id, owner=owner)
    writer = WRITERS[stream_id]
    if what == "append":
        for value in values:
            await writer.aappend(value)
    elif what == "fill":
        count, size = int(request.GET["count"]), int(request.GET["size"])
        for _ in range(count // 500):
            await writer.aextend(["x" * size] * 500)
    elif what == "close":
        await writer.aclose()
    elif what == "error":
        await writer.aerror(values[0])
    elif what == "delete":
        await streams().adelete(stream_id)
    return HttpResponse("ok")


async def watched(request: HttpRequest, stream_id: str) -> HttpResponseBase:
    """An event stream inside a generator of the project's own."""
    response = await sse_response(streams(), stream_id, request=request)
    if isinstance(response, SSEResponse):
        response.streaming_content = _counted(response.streaming_content)
    return response


async def _counted(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    GENERATORS["begun"] += 1
    try:
        async for part in parts:
            yield part
    finally:
        GENERATORS["ended"] += 1


def count_queries(*, connection: BaseDatabaseWrapper, **_: object) -> None:
    """Connected by the live site's process alone: nobody else may be watched."""

    def note(execute: Any, sql: Any, params: Any, many: bool, context: Any) -> Any:
        QUERIES[f"{threading.current_thread().name}: {str(sql)[:60]}"] += 1
        return execute(sql, params, many, context)

    connection.execute_wrappers.append(note)


async def queries(request: HttpRequest) -> JsonResponse:
    """What the site asked since the last time this was asked."""
    counted = dict(QUERIES)
    QUERIES.clear()
    return JsonResponse(counted)


async def stats(request: HttpRequest) -> JsonResponse:
    names = Counter(
        getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()
    )
    return JsonResponse(
        {
            "tails": sum(feed.readers for feed in get_hub().feeds()),
            "tasks": names.total(),
            "threads": threading.active_count(),
            "buffers": server_buffers(),
            **GENERATORS,
        }
    )


async def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse("<!doctype html><meta charset=utf-8><title>Stream</title>")


async def module(request: HttpRequest, name: str) -> HttpResponse:
    text = (PACKAGE / "static" / "django_streams" / name).read_text()
    return HttpResponse(text, content_type="text/javascript; charset=utf-8")


urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("django_streams.http.urls")),
    path("do/<str:what>/<path:stream_id>", never_atomic(act)),
    path("watched/<path:stream_id>", never_atomic(watched)),
    path("open/streams/<path:stream_id>/events", never_atomic(watched)),
    path("stats", never_atomic(stats)),
    path("queries", never_atomic(queries)),
    path("page", never_atomic(page)),
    path("static/<str:name>", never_atomic(module)),
]
