"""A reader of server-sent events for tests: the grammar to the letter.

:class:`SSEParser` is incremental and pure. :func:`open_sse` speaks HTTP/1.1
over a plain asyncio socket, because a test of streaming must see what arrives
when, and clients that collect a whole response first cannot tell::

    async with open_sse("http://127.0.0.1:8000/streams/a/events") as stream:
        assert stream.status == 200
        async for event in stream:
            print(event.event, event.id, event.json())

It also reports what an application does not see: comments, ``retry:`` and
whether an event had an ``id:`` of its own.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import re
import socket
import zlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Iterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

_DIGITS = re.compile(r"[0-9]+")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class SSEEvent:
    """One dispatched event."""

    event: str
    """Its type; ``message`` when none was named."""
    data: str
    id: str
    """The last event id as a browser would keep it, also from earlier events."""
    own_id: str | None = None
    """The ``id:`` of this very event, None without one."""
    at: float = field(default_factory=monotonic, compare=False)
    """``time.monotonic()`` of its arrival."""

    def json(self) -> Any:
        return json.loads(self.data)


@dataclass(frozen=True, slots=True)
class SSEComment:
    """A line that begins with a colon; a browser drops it."""

    text: str
    at: float = field(default_factory=monotonic, compare=False)


class SSEParser:
    """Bytes in any pieces to events and comments.

    After the grammar of the HTML standard: UTF-8 with one optional byte order
    mark, lines ended by CR, LF or CRLF, events without data are not dispatched,
    and one that the end of the input cuts is dropped.
    """

    def __init__(self) -> None:
        self.last_event_id = ""
        self.retry: int | None = None
        """Milliseconds of the latest ``retry:``."""
        self.retries: list[int] = []
        """All of them, in order."""
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._line: list[str] = []
        self._after_cr = False
        self._data: list[str] = []
        self._event = ""
        self._own_id: str | None = None

    def feed(self, data: bytes) -> Iterator[SSEEvent | SSEComment]:
        """What *data* completed. Consume the iterator before feeding again."""
        for line in self._lines(self._decoder.decode(data)):
            if item := self._take(line):
                yield item

    def _lines(self, text: str) -> Iterator[str]:
        # A CR ends its line at once; an LF right behind it, perhaps in the next
        # piece, belongs to it.
        start = 1 if self._after_cr and text.startswith("\n") else 0
        if text:
            self._after_cr = text.endswith("\r")
        for end in _LINE_END.finditer(text, start):
            line = "".join((*self._line, text[start : end.start()]))
            self._line.clear()
            start = end.end()
            yield line
        if start < len(text):
            self._line.append(text[start:])

    def _take(self, line: str) -> SSEEvent | SSEComment | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name and line.startswith(":"):
            return SSEComment(value)
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._event = value
        elif name == "id":
            if "\0" not in value:
                self.last_event_id = self._own_id = value
        elif name == "retry" and _DIGITS.fullmatch(value):
            self.retry = int(value)
            self.retries.append(self.retry)
        return None

    def _dispatch(self) -> SSEEvent | None:
        data, event, own_id = self._data, self._event, self._own_id
        self._data, self._event, self._own_id = [], "", None
        if not data:
            return None
        return SSEEvent(event or "message", "\n".join(data), self.last_event_id, own_id)


async def parse_sse(pieces: AsyncIterable[bytes]) -> AsyncIterator[SSEEvent]:
    """The events in *pieces*, for instance those of a response object."""
    parser = SSEParser()
    async for piece in pieces:
        for item in parser.feed(piece):
            if isinstance(item, SSEEvent):
                yield item


class SSEStream:
    """A response being read. Iterate over it for its events."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        """Names in lower case; of a repeated header the last value."""
        self.parser = SSEParser()
        self.seen: list[SSEEvent] = []
        self.comments: list[SSEComment] = []
        """What came so far."""
        self.pieces: list[bytes] = []
        """Body pieces as the transfer coding cut them, decompressed."""
        self.ended = False
        """The body ended in order; False after a cut connection."""
        self._events = self._read_events()

    def __aiter__(self) -> AsyncIterator[SSEEvent]:
        return self

    async def __anext__(self) -> SSEEvent:
        return await anext(self._events)

    async def next(self, timeout: float = 10.0) -> SSEEvent:
        """The next event; ``TimeoutError``, ``StopAsyncIteration`` at the end.

        After a timeout the stream can be read no further.
        """
        try:
            async with asyncio.timeout(timeout):
                return await anext(self._events)
        except TimeoutError:
            seen = ", ".join(f"{e.event} {e.data[:80]}" for e in self.seen[-20:])
            raise TimeoutError(
                f"waited {timeout:g} s for an event; those that came: {seen or 'none'}"
            ) from None

    async def aclose(self) -> None:
        """Read no further. Leaving the block that opened the stream does it."""
        await self._events.aclose()

    async def text(self) -> str:
        """The body from here on, decoded, whatever it is."""
        return b"".join([piece async for piece in self._body()]).decode()

    async def _read_events(self) -> AsyncGenerator[SSEEvent, None]:
        async with aclosing(self._body()) as pieces:
            async for piece in pieces:
                for item in self.parser.feed(piece):
                    if isinstance(item, SSEEvent):
                        self.seen.append(item)
                        yield item
                    else:
                        self.comments.append(item)

    def _body(self) -> AsyncGenerator[bytes, None]:
        """The body's pieces; sets ``ended`` when it ends in order."""
        raise NotImplementedError

    def abort(self) -> None:
        """Go away with a reset (RST), as a client that crashed."""
        raise NotImplementedError


class _SocketStream(SSEStream):
    """The response to a request over a socket."""

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        super().__init__(status, headers)
        self._reader = reader
        self._writer = writer
        self._inflate = (
            zlib.decompressobj(zlib.MAX_WBITS | 16)
            if headers.get("content-encoding") == "gzip"
            else None
        )

    async def _body(self) -> AsyncGenerator[bytes, None]:
        async for piece in self._coded():
            if self._inflate is not None:
                piece = self._inflate.decompress(piece)
            self.pieces.append(piece)
            yield piece

    async def _coded(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "") == "chunked":
            while line := await self._reader.readline():
                size = int(line.partition(b";")[0], 16)
                if not size:
                    self.ended = True
                    return
                try:
                    yield await self._reader.readexactly(size)
                    await self._reader.readexactly(2)
                except asyncio.IncompleteReadError:
                    return
        elif "content-length" in self.headers:
            size = int(self.headers["content-length"])
            body = await self._reader.read(size) if size else b""
            while len(body) < size and (more := await self._reader.read(size)):
                body += more
            self.ended = len(body) >= size
            yield body
        else:
            while piece := await self._reader.read(65_536):
                yield piece
            self.ended = True

    def abort(self) -> None:
        self._writer.transport.abort()


@asynccontextmanager
async def open_sse(
    url: str,
    *,
    headers: Mapping[str, str] = MappingProxyType({}),
    method: str = "GET",
    buffer: int | None = None,
    timeout: float = 10.0,
) -> AsyncIterator[SSEStream]:
    """Request *url* and read its response; leaving the block closes (FIN).

    *timeout* seconds are given to the connection, and again to the headers.
    With *buffer* this side holds about so many bytes that were not read, so a
    server that pushes back soon notices; else it is the system's megabytes.
    Cancelled: the connection is closed.
    """
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(
            sock=await _connect(host, port, buffer),
            limit=buffer or 65_536,
            ssl=True if secure else None,
            server_hostname=host if secure else None,
        )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = {
            "Host": parts.netloc.rpartition("@")[2],
            "Accept": "text/event-stream",
            "Connection": "close",
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        writer.write(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1"))
        async with asyncio.timeout(timeout):
            status, got = await _read_head(reader)
        if method == "HEAD" or status == 204:
            got = {**got, "content-length": "0"}
            got.pop("transfer-encoding", None)
        yield _SocketStream(status, got, reader, writer)
    finally:
        writer.close()


async def _connect(host: str, port: int, buffer: int | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = infos[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        if buffer is not None:
            # Only before the connection is made does it bound the window.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    line = await reader.readline()
    if not line:
        raise ConnectionError("the server closed without an answer")
    status = int(line.split()[1])
    headers: dict[str, str] = {}
    while line := (await reader.readline()).strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return status, headers
