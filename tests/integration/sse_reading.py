"""Reading a response object in the test's own process."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import AsyncRequestFactory

from django_streams import Streams
from django_streams.sse.response import SSEResponse
from django_streams.testing.sse import SSEEvent, SSEParser


def get(path: str = "/", **headers: str) -> HttpRequest:
    return AsyncRequestFactory().get(path, headers=headers)


async def body(response: HttpResponseBase) -> bytes:
    assert isinstance(response, SSEResponse)
    return b"".join([part async for part in response])


async def events(response: HttpResponseBase) -> list[tuple[str, Any, str | None]]:
    """Name, data and own id of each."""
    parser = SSEParser()
    return [
        (item.event, item.json(), item.own_id)
        for item in parser.feed(await body(response))
        if isinstance(item, SSEEvent)
    ]


async def settled(streams: Streams, *chunks: Any, error: str | None = None) -> None:
    """Make stream ``a`` with *chunks* and end it."""
    async with await streams.aopen("a") as writer:
        if chunks:
            await writer.aextend(chunks)
        if error is not None:
            await writer.aerror(error)


UP_TO_DATE: tuple[str, Any, str | None] = ("up-to-date", {}, None)
