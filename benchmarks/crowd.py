"""The load generator: many HTTP readers in one thread, one epoll, plain sockets.

It must take less than half a core, or it measures itself. No parsing beyond one
search in what came, no object per event.
"""

from __future__ import annotations

import os
import re
import select
import socket
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from .payload import STAMP

READ = 65_536
WITHIN = 60.0
"""Seconds of silence after which readers are given up."""

AT_ONCE = 20
"""Requests on their way while a crowd gathers."""

_END = 64
"""Bytes in which an event without a chunk ends, framing included."""

UP_TO_DATE = b"event: up-to-date"


def request(path: str, *headers: str) -> bytes:
    """A GET as a browser's EventSource would send, *headers* added."""
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


class LostReader(RuntimeError):
    """A reader was cut, refused, or never got what it waited for."""


class Crowd:
    """Readers of the server on *port*, closed at the end of ``with``."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
        self._poll.close()

    def leave(self) -> None:
        """Close every connection at once."""
        for one in self._sockets.values():
            one.close()
        self._sockets.clear()

    def gather(self, requests: Iterable[bytes], ready: bytes = UP_TO_DATE) -> list[int]:
        """Connect a reader per request; their numbers when each has got *ready*."""
        left = iter(requests)
        waiting: dict[int, bytes] = {}
        gathered = []
        while True:
            while len(waiting) < AT_ONCE and (one := next(left, None)) is not None:
                gathered.append(self.ask(one))
                waiting[gathered[-1]] = b""
            if not waiting:
                return gathered
            for place, data in self._news():
                if place not in waiting:
                    continue
                waiting[place] += data
                if ready in waiting[place]:
                    del waiting[place]

    def ask(self, request: bytes) -> int:
        """Connect one reader and send its request; its number."""
        one = socket.create_connection(("127.0.0.1", self._port), WITHIN)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(request)
        self._sockets[one.fileno()] = one
        self._poll.register(one.fileno(), select.EPOLLIN)
        return one.fileno()

    def tell(self, place: int, data: bytes) -> None:
        """Send *data* over one reader's connection."""
        self._sockets[place].sendall(data)

    def ignore(self, place: int) -> None:
        """Read nothing more from one reader."""
        self._poll.unregister(place)

    def _news(self) -> list[tuple[int, bytes]]:
        """What came, for each reader to which something came."""
        ready = self._poll.poll(WITHIN)
        if not ready:
            raise LostReader(f"nothing came for {WITHIN:.0f} s")
        news = []
        for place, _ in ready:
            data = os.read(place, READ)
            if not data:
                raise LostReader("the server closed a connection")
            news.append((place, data))
        return news

    def stamps(self, expected: int, stamp: re.Pattern[bytes] = STAMP) -> list[float]:
        """Seconds from the stamp of each event to its receipt, *expected* in all."""
        late: list[float] = []
        read, find, now = os.read, stamp.findall, time.monotonic
        while len(late) < expected:
            ready = self._poll.poll(WITHIN)
            if not ready:
                raise LostReader(f"{len(late)} of {expected} events came")
            for place, _ in ready:
                data = read(place, READ)
                at = now()
                late += [at - float(sent) for sent in find(data)]
                if not data:
                    raise LostReader("the server closed a connection")
        return late

    def read_to(self, requests: Iterable[bytes], mark: bytes) -> list[bytes]:
        """Send all requests at once; what each reader got until it saw *mark*.

        A reader that has seen it reads no more.
        """
        got = {self.ask(one): bytearray() for one in requests}
        left = set(got)
        while left:
            for place, data in self._news():
                got[place] += data
                if mark in got[place][-len(data) - len(mark) :]:
                    self.ignore(place)
                    left.discard(place)
        return [bytes(data) for data in got.values()]

    def collect(self, requests: Iterable[bytes], until: bytes) -> list[bytes]:
        """Send all requests at once; what each got, *until* being its last event."""
        order = [self.ask(one) for one in requests]
        parts: dict[int, list[bytes]] = {place: [] for place in order}
        left = set(order)
        while left:
            for place, data in self._news():
                parts[place].append(data)
                end = data
                if len(data) < _END:
                    end = b"".join(parts[place][-_END:])
                if until in end[-_END:]:
                    left.discard(place)
        return [b"".join(parts[place]) for place in order]
