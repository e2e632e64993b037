"""``sse_response``: the HTTP side of an event stream."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final, cast

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from .. import conf
from ..exceptions import StreamUsageError
from ..streams import Streams
from .follow import EventStream
from .resume import InvalidPosition, plan, resume_point
from .terms import Guard, Terms

logger = logging.getLogger("django_streams.sse")

CONTENT_TYPE: Final = "text/event-stream; charset=utf-8"
NO_STORE: Final = "no-store"
HEADERS: Final = {
    # no-transform: a proxy that compresses holds events back.
    "Cache-Control": "no-store, no-transform",
    "X-Accel-Buffering": "no",
}

_WSGI = (
    "an event stream cannot be served by WSGI, where it would occupy a worker and "
    "arrive in one lump at its end; run the project under ASGI (Daphne, uvicorn), "
    "or read with streams.read() and answer with what is stored"
)


async def sse_response(
    streams: Streams,
    stream_id: str,
    *,
    request: HttpRequest | None = None,
    start: int | None = None,
    batch_size: int = 100,
    heartbeat: float | None = None,
    max_age: float | None = None,
    stop: asyncio.Event | None = None,
) -> HttpResponseBase:
    """Answer with *stream_id* as server-sent events. The caller has authorised.

    Replays from *start*, else after the request's ``Last-Event-ID``, else from
    its ``?from=``, else from 0; then follows until the stream settles. See
    ``docs/reference/sse.md`` for the wire. Answers 404 for an unknown stream,
    400 for a ``?from=`` that is no position, 204 to who has seen the end.

    *heartbeat* is the seconds of silence after which a comment is sent, 0 for
    none (default: ``SSE_HEARTBEAT``). After *max_age* seconds, or when *stop*
    is set, the response ends in order and without an end event, so a client
    comes back and resumes. Cancelling the task that sends the response ends the
    tail too; nothing stays.

    Raises :class:`StreamUsageError` under WSGI, ``TypeError`` and ``ValueError``
    for arguments that make no sense.
    """
    return await respond(
        streams,
        stream_id,
        request=request,
        start=start,
        batch_size=batch_size,
        heartbeat=heartbeat,
        max_age=max_age,
        stop=stop,
    )


async def respond(
    streams: Streams,
    stream_id: str,
    *,
    request: HttpRequest | None = None,
    start: int | None = None,
    batch_size: int = 100,
    heartbeat: float | None = None,
    max_age: float | None = None,
    stop: asyncio.Event | None = None,
    guard: Guard | None = None,
) -> HttpResponseBase:
    """:func:`sse_response` with a *guard* that may end it, for our own views."""
    # Django REST framework hands its own request around Django's.
    request = getattr(request, "_request", request)
    if isinstance(request, WSGIRequest):
        raise StreamUsageError(_WSGI, stream_id=stream_id)
    settings = conf.get()
    if heartbeat is None:
        heartbeat = settings.SSE_HEARTBEAT
    _check(start, batch_size, heartbeat, max_age)
    status = await streams.astatus(stream_id)
    if status is None:
        return not_found(stream_id)
    try:
        point = resume_point(
            start,
            None if request is None else request.headers.get("Last-Event-ID"),
            None if request is None else request.GET.get("from"),
        )
    except InvalidPosition as error:
        return _text(str(error), 400)
    chosen = plan(point, status.cursor, status.state.settled)
    if chosen.end_seen:
        return _no_more()
    if request is not None and request.method == "HEAD":
        return SSEResponse(_nothing())
    terms = Terms(
        batch_size=batch_size,
        heartbeat=heartbeat,
        max_age=max_age,
        send_timeout=settings.SSE_SEND_TIMEOUT,
        pace=settings.SSE_PACE if server_buffers() else None,
        stop=stop,
        guard=guard,
    )
    return SSEResponse(EventStream(streams, status, chosen, terms))


def _check(
    start: int | None, batch_size: int, heartbeat: float, max_age: float | None
) -> None:
    for name, value in (("start", start), ("batch_size", batch_size)):
        if value is not None and (isinstance(value, bool) or type(value) is not int):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    if heartbeat < 0:
        raise ValueError(f"heartbeat is {heartbeat} s; use 0 for none")
    if max_age is not None and max_age <= 0:
        raise ValueError(f"max_age is {max_age} s; use None for no limit")


def server_buffers() -> bool:
    """Whether this loop's server takes whatever it is sent, as Daphne does.

    Daphne's ``send`` returns at once and buffers without bound (200 MB for one
    client that did not read, measured). It is known by its reactor, which runs
    on this very loop; that the module is imported proves nothing, since the
    ``daphne`` app imports it under every server.
    """
    reactor: Any = sys.modules.get("twisted.internet.reactor")
    return (
        reactor is not None
        and bool(getattr(reactor, "running", False))
        and getattr(reactor, "_asyncioEventloop", None) is asyncio.get_running_loop()
    )


def not_found(stream_id: str) -> HttpResponse:
    """The answer for an unknown stream, and for one that is none of yours."""
    return _text(f'Stream "{stream_id}" does not exist', 404)


def _text(text: str, status: int) -> HttpResponse:
    response = HttpResponse(
        text.encode("utf-8", "replace"),
        status=status,
        content_type="text/plain; charset=utf-8",
    )
    response["Cache-Control"] = NO_STORE
    return response


def _no_more() -> HttpResponse:
    # 204 makes an EventSource stop for good; any other end makes it reconnect.
    response = HttpResponse(status=204)
    response["Cache-Control"] = NO_STORE
    del response["Content-Type"]
    return response


async def _nothing() -> AsyncGenerator[bytes, None]:
    return
    yield


class SSEResponse(StreamingHttpResponse):
    """A streaming response that no middleware holds back or drains.

    It says that it has a content encoding: Django's ``GZipMiddleware`` and its
    kin then leave it alone. Compressed event by event it would arrive as many
    gzip members, of which a browser reads the first. Nothing of that is on the
    wire. Content put around it by asynchronous middleware is sent; a
    synchronous wrapper cannot iterate it and is left out, with a warning.
    """

    def __init__(self, events: AsyncIterable[bytes]) -> None:
        self._layers: list[AsyncIterator[bytes]] = []
        """The events, then what was put around them, innermost first."""
        super().__init__(events, content_type=CONTENT_TYPE, headers=HEADERS)

    def has_header(self, header: str) -> bool:
        return header.lower() == "content-encoding" or super().has_header(header)

    __contains__ = has_header

    @property
    def streaming_content(self) -> AsyncIterator[bytes]:
        return cast("AsyncIterator[bytes]", super().streaming_content)

    @streaming_content.setter
    def streaming_content(self, value: object) -> None:
        if not isinstance(value, AsyncIterable):
            logger.warning(
                "a synchronous middleware put %s around an event stream, which "
                "cannot be iterated synchronously; the events are sent without it",
                type(value).__name__,
            )
            return
        layer = aiter(value)
        self._layers.append(layer)
        StreamingHttpResponse.streaming_content.fset(self, layer)  # type: ignore[union-attr]

    def __aiter__(self) -> AsyncGenerator[bytes]:
        # Without a wrapper the server iterates the events themselves: two
        # generators fewer for every event to pass.
        if len(self._layers) == 1:
            return cast("AsyncGenerator[bytes]", self._layers[0])
        return self._through_layers()

    async def _through_layers(self) -> AsyncGenerator[bytes]:
        # `async for` does not close what it iterates when it is left early, and
        # a `finally` in a wrapper must not wait for the garbage collector.
        async with AsyncExitStack() as stack:
            for layer in self._layers:
                if isinstance(layer, AsyncGenerator):
                    stack.push_async_callback(layer.aclose)
            async for part in self.streaming_content:
                yield part

    def __iter__(self) -> Iterator[bytes]:
        raise StreamUsageError(_WSGI)
