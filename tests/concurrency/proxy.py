"""A proxy before PostgreSQL that loses statements, answers or their time.

It reads as much of the wire as it takes to know a statement when it passes and
its answer when it comes back. For each statement a rule says what becomes of
it. Children use it by ``DS_TEST_POSTGRESQL_PORT``::

    with PostgresProxy() as proxy:
        with Child(produce, env=proxy.env) as child:
            proxy.rule = lambda sql: Cut.AFTER if sql == "COMMIT" else None
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests import services

_ENCRYPTION = (80877103, 80877104)
"""The codes with which a client asks for TLS or GSSAPI before it begins."""

_WITHIN = 10.0
"""Seconds in which the server must answer a statement that was let go."""


class Cut(enum.Enum):
    BEFORE = "before"
    """The statement is lost on its way to the server."""
    AFTER = "after"
    """The server has carried it out, and its answer is lost."""
    LATE = "late"
    """The client is cut off at once; the server gets the statement when
    :meth:`PostgresProxy.release` is called, and its connection lives till then."""


Rule = Callable[[str], Cut | None]
"""What becomes of this SQL; asked in the order in which statements arrive."""


@dataclass(eq=False, slots=True)
class _Link:
    """One client's connection and its way on to the server."""

    client: socket.socket
    server: socket.socket
    cutting: bool = False
    """The next completed command is the one whose answer is lost."""
    late: bytes = b""
    released: bool = False
    """What was late is on its way."""
    answered: threading.Event = field(default_factory=threading.Event)
    """The server has answered it, or is gone."""
    parsed: dict[bytes, bytes] = field(default_factory=dict)
    """The prepared statements by name; the unnamed one among them."""
    pumps: int = 2
    """Threads that use the sockets; the last one closes them."""

    def sql(self, kind: bytes, message: bytes) -> str | None:
        """The statement that this message carries out, with its parameters."""
        body = message[5:]
        if kind == b"P":
            name, statement = body.split(b"\0")[:2]
            self.parsed[name] = statement
        elif kind == b"B":
            _, name, values = body.split(b"\0", 2)
            return (self.parsed[name] + b" " + values).decode(errors="replace")
        elif kind == b"Q":
            return body.rstrip(b"\0").decode(errors="replace")
        return None


class PostgresProxy:
    """Listens on a free port of 127.0.0.1 while its block runs."""

    def __init__(
        self,
        host: str = services.POSTGRESQL_HOST,
        port: int = services.POSTGRESQL_PORT,
    ) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.env = {
            "DS_TEST_POSTGRESQL_HOST": "127.0.0.1",
            "DS_TEST_POSTGRESQL_PORT": str(self.port),
            # What is cut is the connection; nobody pulls the plug.
            "PGOPTIONS": "-c synchronous_commit=off",
        }
        self.rule: Rule = lambda sql: None
        self.cuts: list[tuple[Cut, str]] = []
        """What was cut, and how."""
        # A rule may release what is late.
        self._lock = threading.RLock()
        self._links: set[_Link] = set()
        self._threads = [threading.Thread(target=self._accept, name="proxy")]

    def release(self, *, wait: bool = True) -> None:
        """Hand every late statement to the server, and wait for the answers.

        One that needs a lock which another late one holds is answered after it,
        so all are sent before any is waited for.
        """
        with self._lock:
            late = [link for link in self._links if link.late]
            for link in late:
                data, link.late = link.late, b""
                link.released = True
                with contextlib.suppress(OSError):
                    link.server.sendall(data)
        for link in late if wait else []:
            assert link.answered.wait(_WITHIN), "no answer to a late statement"

    def count(self, cut: Cut) -> int:
        with self._lock:
            return sum(how is cut for how, _ in self.cuts)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for end in (client, server):
                # Messages are passed on one by one, and would wait for each other.
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = _Link(client, server)
            with self._lock:
                self._links.add(link)
                for pump in (self._to_server, self._to_client):
                    thread = threading.Thread(target=pump, args=(link,), name="proxy")
                    self._threads.append(thread)
                    thread.start()

    # From the client

    def _to_server(self, link: _Link) -> None:
        cut: Cut | None = None
        with contextlib.suppress(OSError, EOFError):
            link.server.sendall(_startup(link.client))
            for kind, message in _messages(link.client):
                if link.late:
                    # The rest of it, up to the Sync that carries it out.
                    link.late += message
                elif (sql := link.sql(kind, message)) is not None:
                    cut = self._decide(link, sql.strip(), message)
                if cut is Cut.BEFORE or (cut is Cut.LATE and kind in (b"Q", b"S")):
                    break
                if cut is not Cut.LATE:
                    link.server.sendall(message)
        self._done(link, keep_server=cut is Cut.LATE)

    def _decide(self, link: _Link, sql: str, message: bytes) -> Cut | None:
        with self._lock:
            cut = self.rule(sql)
            if cut is not None:
                self.cuts.append((cut, sql))
            link.cutting = cut is Cut.AFTER
            if cut is Cut.LATE:
                link.late = message
            return cut

    # From the server

    def _to_client(self, link: _Link) -> None:
        lost = False
        with contextlib.suppress(OSError, EOFError):
            for kind, message in _messages(link.server):
                # CommandComplete or an error, of which the client learns no more.
                lost = lost or (link.cutting and kind in (b"C", b"E"))
                if (lost or link.released) and kind == b"Z":
                    # What was not in a transaction is committed by now: a
                    # prepared statement is so only after its CommandComplete.
                    break
                if lost:
                    continue
                # The client of a late statement is gone; its answer is not.
                with contextlib.suppress(OSError):
                    link.client.sendall(message)
        link.answered.set()
        self._done(link)

    def _done(self, link: _Link, *, keep_server: bool = False) -> None:
        """One of the two pumps ends, and with it the other."""
        _end(link.client)
        if not keep_server:
            _end(link.server)
        with self._lock:
            link.pumps -= 1
            if not link.pumps:
                self._links.discard(link)
                link.client.close()
                link.server.close()

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
        self._threads[0].join()
        self._listener.close()
        with self._lock:
            for link in self._links:
                _end(link.client)
                _end(link.server)
        for thread in self._threads[1:]:
            thread.join()


def _startup(client: socket.socket) -> bytes:
    """The message that begins a connection; encryption is declined."""
    while True:
        head = _exactly(client, 8)
        length, code = struct.unpack("!II", head)
        if code not in _ENCRYPTION:
            return head + _exactly(client, length - 8)
        client.sendall(b"N")


def _messages(source: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Each message as (type, all of its bytes)."""
    while True:
        head = _exactly(source, 5)
        (length,) = struct.unpack("!I", head[1:])
        yield head[:1], head + _exactly(source, length - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = source.recv(count - len(data))
        if not some:
            raise EOFError
        data += some
    return data


def _end(end: socket.socket) -> None:
    """End a connection at once, for the peer and for a thread that reads it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
