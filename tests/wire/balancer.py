"""One address for several servers: each new connection goes to the next one.

Sockets and other requests take turns apart: a page makes one of each, and all
sockets of several pages would end at one server.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self


class Balancer:
    """Listens on a free port of 127.0.0.1 while its block runs."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._next = {True: itertools.cycle(ports), False: itertools.cycle(ports)}
        self._ways = len(ports)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Wakes the thread that waits for a connection; close() alone does not.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            head = client.recv(65536)
            server = self._reach(b"upgrade: websocket" in head.lower())
            if server is None:
                return
            with server, contextlib.suppress(OSError):
                server.sendall(head)
                back = threading.Thread(target=_pump, args=(server, client))
                back.start()
                _pump(client, server)
                back.join()

    def _reach(self, upgrade: bool) -> socket.socket | None:
        """A connection to the next server that is there."""
        for _ in range(self._ways):
            with contextlib.suppress(OSError):
                port = next(self._next[upgrade])
                found = socket.create_connection(("127.0.0.1", port))
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return found
        return None


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    # Each way ends both: a connection that is cut is cut for the other side.
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
