"""A proxy before PostgreSQL that numbers sessions itself, as poolers do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

_KEY_DATA = b"K\0\0\0\x0c"
"""Head of the message with which a server tells a session's number."""


class Renumbering:
    """Passes on what it gets, on a free port of 127.0.0.1, without encryption."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
            except OSError:
                return  # closed
            self._ends += [client, server]
            for way in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pass_on, args=way)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, to: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                at = data.find(_KEY_DATA) + len(_KEY_DATA) if back else 0
                if at >= len(_KEY_DATA):
                    (number,) = struct.unpack_from("!i", data, at)
                    data = data[:at] + struct.pack("!i", number + 1) + data[at + 4 :]
                    back = False
                to.sendall(data)
        with contextlib.suppress(OSError):
            to.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in (self._listener, *self._ends):
            end.close()
