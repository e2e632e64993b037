"""WebSockets on plain sockets: as much of the protocol as a measurement needs.

What a server sends is not taken apart: frames of text are found in the bytes,
for nothing masks or compresses them.
"""

from __future__ import annotations

import json
import socket
import time
from types import TracebackType
from typing import Any, Self

WITHIN = 60.0
"""Seconds after which what does not come is given up."""

READ = 65_536
_NO_MASK = b"\0\0\0\0"
_TEXT = 0x81


def upgrade(path: str) -> bytes:
    """The request for a WebSocket, without compression."""
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: ZGphbmdvLXN0cmVhbXMhIQ==\r\n\r\n"
    ).encode()


def frame(value: Any) -> bytes:
    """A client's text frame with *value* as JSON; masked, with zeros."""
    data = json.dumps(value).encode()
    size = len(data)
    if size < 126:
        head = bytes((_TEXT, 0x80 | size))
    elif size < 65_536:
        head = bytes((_TEXT, 0x80 | 126)) + size.to_bytes(2)
    else:
        head = bytes((_TEXT, 0x80 | 127)) + size.to_bytes(8)
    return head + _NO_MASK + data


def ask(request_id: str, **body: Any) -> Any:
    """The chat request of a user who says one word; *body* goes with it."""
    message = {
        "id": f"m-{request_id}",
        "role": "user",
        "parts": [{"type": "text", "text": "go"}],
    }
    return {
        "type": "cf_agent_use_chat_request",
        "id": request_id,
        "init": {
            "method": "POST",
            "body": json.dumps({"messages": [message], **body}),
        },
    }


class ClientSocket:
    """One client, used by one thread; *path* is asked for when it is entered."""

    def __init__(self, port: int, path: str) -> None:
        self._address = "127.0.0.1", port
        self._path = path
        self._unread = b""

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(self._address, WITHIN)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(upgrade(self._path))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, value: Any) -> None:
        self._socket.sendall(frame(value))

    def until(self, mark: bytes) -> bytes:
        """All that came up to and with *mark*; what follows it is kept."""
        deadline = time.monotonic() + WITHIN
        data = bytearray(self._unread)
        searched = 0
        while (found := data.find(mark, searched)) < 0:
            searched = max(0, len(data) - len(mark))
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                news = self._socket.recv(READ)
            except TimeoutError:
                raise RuntimeError(
                    f"{mark!r} did not come; {bytes(data[-500:])!r}"
                ) from None
            if not news:
                raise RuntimeError(f"closed before {mark!r}; {bytes(data[-500:])!r}")
            data += news
        end = found + len(mark)
        self._unread = bytes(data[end:])
        return bytes(data[:end])
