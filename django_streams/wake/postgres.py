"""Wakes between processes, through PostgreSQL's LISTEN and NOTIFY.

For a site that has PostgreSQL and no Redis. The hint leaves over a connection
of the waker's own, after the append has been committed: a NOTIFY inside the
append would serialise all commits of the server.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from .. import conf
from .local import LocalWaker
from .marks import Marks
from .remote import RemoteWaker
from .thread import LoopThread

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn, PGresult

CHANNEL = "django_streams"
"""One for all streams; the keys are in the payload. Every connection that
listens to anything is signalled at each NOTIFY, so a channel a stream would
save its listeners nothing and cost a statement for each stream that is followed."""

KEYS = 240
"""In one payload, which must be below 8,000 bytes; a key and its comma are 33."""

SEND_GAP = 0.01
"""Seconds between two rounds of sending, as with a channel layer: the first wake
after a pause leaves at once, a busy producer's are joined."""

PROBE_EVERY = 4.0
"""Seconds without a word until the server is asked for one. A connection whose
other side is gone stays silent for ever."""

CONNECT_WITHIN = 2.5
"""Seconds for a new connection; less than a closing waker waits for its thread."""


class ListenError(Exception):
    """The server refused a statement, or notifications would not arrive."""


def check_alias(alias: str) -> None:
    """Raise ``ImproperlyConfigured`` for one that cannot carry wakes."""
    setting = f"{conf.NAME}['WAKE_DATABASE']"
    if alias not in connections.settings:
        raise ImproperlyConfigured(f"{setting} names {alias!r}, which DATABASES lacks")
    if connections[alias].vendor != "postgresql":
        raise ImproperlyConfigured(
            f"{setting} names {alias!r}, which is {connections[alias].vendor}: only "
            "PostgreSQL has LISTEN and NOTIFY"
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise ImproperlyConfigured(
            f"{setting} needs psycopg 3, and psycopg2 cannot do it: install "
            "django-streams[postgresql]"
        ) from None


class PostgresWaker(RemoteWaker):
    """Wakes its own process directly, the others through PostgreSQL.

    *alias* must lead straight to the server, or to a pooler that does nothing
    but pass on: behind one that lends connections, notifications reach whoever
    has borrowed that connection. One connection a process.
    """

    def __init__(self, local: LocalWaker, alias: str) -> None:
        check_alias(alias)
        super().__init__(
            local,
            f"LISTEN/NOTIFY on {alias!r}",
            lambda marks, thread: PostgresSession(alias, marks, local, thread),
        )


class PostgresSession:
    """One connection in one event loop, until something fails.

    One task owns it and does one thing at a time. Statements go through libpq
    without waiting anywhere else: psycopg's own ``execute`` answers a
    cancellation by asking the server to cancel, which a hung one never does.
    """

    def __init__(
        self, alias: str, marks: Marks, local: LocalWaker, thread: LoopThread
    ) -> None:
        self._alias = alias
        self._marks = marks
        self._local = local
        self._thread = thread
        self._timeout = conf.get().WAKE_TIMEOUT
        self._news = asyncio.Event()
        self._connection: AsyncConnection[Any]
        self._pid = 0
        """The server's name for this session: what bears it was heard here."""
        self._listening = False
        self._send_at = 0.0
        self._probe_at = 0.0

    def look(self) -> None:
        self._news.set()

    async def run(self) -> None:
        async with asyncio.timeout(CONNECT_WITHIN):
            self._connection = await self._connect()
        try:
            await self._begin()
            while not await self._step():
                pass
        finally:
            # Nothing in it waits, so a cancellation cannot interrupt it.
            await self._connection.close()

    @property
    def _libpq(self) -> PGconn:
        return self._connection.pgconn

    async def _connect(self) -> AsyncConnection[Any]:
        from psycopg import AsyncConnection

        params = connections[self._alias].get_connection_params()
        # What Django makes of a connection of its own.
        for name in ("cursor_factory", "context", "prepare_threshold"):
            params.pop(name, None)
        params.setdefault("fallback_application_name", "django_streams wakes")
        return await AsyncConnection.connect(**params, autocommit=True)

    async def _begin(self) -> None:
        # A pooler answers for itself when it numbers a session. Nothing else gives
        # it away: LISTEN succeeds through it, and so does a NOTIFY to oneself.
        result = await self._ask("SELECT pg_backend_pid()")
        self._pid = int(result.get_value(0, 0) or b"0")
        if self._pid != self._libpq.backend_pid:
            raise ListenError(
                "a connection pooler answers, and notifications would not come "
                "through it; name an alias that leads to PostgreSQL itself"
            )

    async def _step(self) -> bool:
        """Do what there is to do, then wait for news; whether that was all."""
        loop = asyncio.get_running_loop()
        self._news.clear()
        closing = self._thread.closing
        self._marks.take_changed()
        if not self._listening and not closing and self._marks.followed():
            await self._listen()
        if closing or loop.time() >= self._send_at:
            await self._send()
        if closing:
            return True
        if loop.time() >= self._probe_at:
            await self._probe()
        pending = self._marks.has_pending()
        await self._wait(min(self._probe_at, self._send_at if pending else math.inf))
        return False

    async def _listen(self) -> None:
        await self._ask(f"LISTEN {CHANNEL}")
        self._listening = True
        self._thread.works()
        # What was appended between a reader's first look, or the end of the last
        # connection, and this moment.
        for key in self._marks.followed():
            self._local.wake(key)

    async def _send(self) -> None:
        keys = self._marks.take_pending()
        if not keys:
            return
        payloads = [",".join(keys[n : n + KEYS]) for n in range(0, len(keys), KEYS)]
        try:
            await self._ask(
                "SELECT pg_notify($1, p) FROM unnest($2::text[]) AS p",
                CHANNEL,
                # Keys are hexadecimal, so nothing in them needs an escape.
                "{" + ",".join(f'"{payload}"' for payload in payloads) + "}",
            )
        except BaseException:
            # Not worth losing: the next session sends them.
            for key in keys:
                self._marks.send(key)
            raise
        self._thread.works()
        self._send_at = asyncio.get_running_loop().time() + SEND_GAP

    async def _probe(self) -> None:
        """Have the server say something; nobody listens to what nobody follows."""
        if self._listening and not self._marks.followed():
            await self._ask(f"UNLISTEN {CHANNEL}")
            self._listening = False
        else:
            await self._ask("SELECT 1")
        self._thread.works()
        self._probe_at = asyncio.get_running_loop().time() + PROBE_EVERY

    async def _wait(self, until: float) -> None:
        """Until somebody looks, the server speaks, or a time of the loop's clock."""
        loop, wire = asyncio.get_running_loop(), self._libpq.socket
        loop.add_reader(wire, self._news.set)
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            loop.remove_reader(wire)
        self._libpq.consume_input()
        self._hear()

    def _hear(self) -> None:
        while (note := self._libpq.notifies()) is not None:
            if note.be_pid != self._pid:
                for key in note.extra.decode("ascii", "replace").split(","):
                    self._local.wake(key)

    async def _ask(self, statement: str, *params: str) -> PGresult:
        """The result of one statement; :class:`ListenError` if it is refused."""
        async with asyncio.timeout(self._timeout):
            self._libpq.send_query_params(
                statement.encode(), [param.encode() for param in params]
            )
            while self._libpq.flush():
                await self._wire(writing=True)
            last: PGresult | None = None
            while True:
                while self._libpq.is_busy():
                    await self._wire()
                # Notifications come between a statement and its result, too.
                self._hear()
                if (result := self._libpq.get_result()) is None:
                    break
                last = result
        if last is None or last.error_message:
            raise ListenError(
                last.get_error_message() if last else "the connection is closed"
            )
        return last

    async def _wire(self, *, writing: bool = False) -> None:
        """Wait until the socket can be read (or written), and read it."""
        loop, wire = asyncio.get_running_loop(), self._libpq.socket
        ready = asyncio.Event()
        loop.add_reader(wire, ready.set)
        if writing:
            loop.add_writer(wire, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(wire)
            loop.remove_writer(wire)
        self._libpq.consume_input()
