"""A TCP proxy on 127.0.0.1 that a test can cut, as a network can be cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Passes bytes to ``127.0.0.1:port`` until :meth:`cut`.

    While cut, every connection through it is reset and new ones are reset too;
    :meth:`mend` lets new ones pass again.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._threads = [threading.Thread(target=self._accept)]

    def cut(self) -> None:
        """Reset every connection; nothing passes until :meth:`mend`."""
        with self._lock:
            self._cut = True
            for end in self._open:
                _reset(end)

    def mend(self) -> None:
        with self._lock:
            self._cut = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                _reset(client)
                client.close()
                continue
            with self._lock:
                passes = not self._cut
                if passes:
                    self._open |= {client, server}
            if not passes:
                for end in (client, server):
                    _reset(end)
                    end.close()
                continue
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pump, args=(source, sink))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._open.discard(source)
        source.close()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Wakes the accepting thread; close() alone does not.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()


def _reset(end: socket.socket) -> None:
    """End a connection at once, for both the peer and a thread that reads it."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        end.shutdown(socket.SHUT_RDWR)
