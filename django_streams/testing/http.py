"""Event streams for tests: in this process, or from a live server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any

from .sse import SSEStream, open_sse


class ResponseStream(SSEStream):
    """The response of a view in this process, read as it is produced."""

    def __init__(self, response: Any) -> None:
        headers = {name.lower(): value for name, value in response.items()}
        super().__init__(response.status_code, headers)
        self._response = response

    async def _body(self) -> AsyncGenerator[bytes, None]:
        if not self._response.streaming:
            self.pieces.append(self._response.content)
            yield self._response.content
        elif not self._response.is_async:
            raise TypeError("the view streams synchronously: that is no event stream")
        else:
            async with aclosing(aiter(self._response)) as pieces:
                async for piece in pieces:
                    self.pieces.append(piece)
                    yield piece
        self.ended = True

    def abort(self) -> None:
        raise TypeError("there is no connection to abort; leave the block instead")


class SSEClient:
    """Reads event streams as a browser's ``EventSource`` does, for tests.

    *client* is the ``django.test.AsyncClient`` that asks, a new one unless
    given; log in there.
    """

    def __init__(self, client: Any = None) -> None:
        if client is None:
            from django.test import AsyncClient

            client = AsyncClient()
        self.client = client

    @asynccontextmanager
    async def get(
        self,
        url: str,
        *,
        last_event_id: int | str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        timeout: float = 10.0,
    ) -> AsyncIterator[SSEStream]:
        """Ask for *url*; leaving the block ends the response.

        A path is served in this process through the project's middleware and
        URLs; an address with ``http://`` is asked for over a socket, with this
        client's cookies. *last_event_id* is what a browser sends when it comes
        back. *timeout* seconds are given to the answer's beginning.
        """
        sent = {"Accept": "text/event-stream", **headers}
        if last_event_id is not None:
            sent["Last-Event-ID"] = str(last_event_id)
        if "://" in url:
            cookies = self.client.cookies
            if cookies:
                sent["Cookie"] = "; ".join(f"{n}={m.value}" for n, m in cookies.items())
            async with open_sse(url, headers=sent, timeout=timeout) as stream:
                yield stream
            return
        async with asyncio.timeout(timeout):
            response = await self.client.get(url, headers=sent)
        stream = ResponseStream(response)
        try:
            yield stream
        finally:
            await stream.aclose()
