"""Fault points: the places at which a process or its connection can fail.

Every SQL statement and every commit on one database has two, before and after.
:class:`Faults` counts them, and lets one happen::

    with Faults("default") as faults:               # which are there?
        writer.append("a")
    [str(point) for point in faults.points]         # ["before BEGIN", ...]

    with Faults("default", at="after COMMIT", fault=lose):
        writer.append("b")                          # stored, the answer lost

    with Faults("default", at=3, fault=kill):       # in a process of its own
        writer.append("c")

The library has no hooks for this: statements and commits are wrapped on the
connections themselves, with what Django offers for it.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

CLOCKED_THREADS = frozenset({"django-streams-keeper", "django-streams-poll"})
"""They renew leases and ask what moved, at times of their own."""

Moment = Literal["before", "after"]

_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE)\s+[\"`]?(\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FaultPoint:
    """One place; ``str()`` of it is its name, such as ``after COMMIT``."""

    number: int
    """Counted from 1."""
    moment: Moment
    what: str
    """``COMMIT``, or a statement's first word and the first table it names."""
    sql: str
    thread: str
    """The name of the thread that got there."""

    def __str__(self) -> str:
        return f"{self.moment} {self.what}"


Fault = Callable[[FaultPoint, BaseDatabaseWrapper], object]
"""What happens at a point, on the thread and the connection that got there."""


def kill(point: FaultPoint, connection: BaseDatabaseWrapper) -> None:
    """``kill -9`` of this very process; nothing is flushed, closed or unwound."""
    os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))


def lose(point: FaultPoint, connection: BaseDatabaseWrapper) -> NoReturn:
    """The connection is gone, as when the server or the network fails.

    Before a statement or commit it never arrived; after it, it was carried out
    and the answer is lost. Raises ``django.db.OperationalError``.
    """
    if (driver := connection.connection) is not None:
        if connection.vendor == "sqlite":
            # Its transaction lives on while a cursor does, closed or not.
            driver.rollback()
        if connection.vendor == "mysql":
            # It cannot be closed twice, and Django will.
            with (
                suppress(OSError),  # it is lost already
                socket.socket(fileno=os.dup(driver.fileno())) as wire,
            ):
                wire.shutdown(socket.SHUT_RDWR)
        else:
            driver.close()
    raise OperationalError(f"the connection was closed {point}")


def _of_a_call(point: FaultPoint) -> bool:
    return point.thread not in CLOCKED_THREADS


class Faults:
    """Counts the fault points of one database while its block runs.

    *at* is the point at which *fault* happens: a number, or a name for the
    first point called so. It happens *times* in a row, at whatever points come
    next. *only* says which points count at all: by default not those of the
    threads that ask at times of their own, or no count would be repeatable.

    Sees the connections of all threads, and those that are opened meanwhile.
    """

    def __init__(
        self,
        using: str = "default",
        *,
        at: int | str | None = None,
        fault: Fault = lose,
        times: int = 1,
        only: Callable[[FaultPoint], bool] = _of_a_call,
    ) -> None:
        self.using = using
        self.points: list[FaultPoint] = []
        """Those that were reached, in order."""
        self.hit: FaultPoint | None = None
        """Where the fault happened first."""
        self._at = at
        self._fault = fault
        self._left = times
        self._only = only
        self._lock = threading.Lock()
        self._hooked: list[tuple[BaseDatabaseWrapper, Any]] = []

    def __enter__(self) -> Self:
        connection_created.connect(self._created, weak=False)
        self._hook(connections[self.using])
        # Django knows only this thread's. A proxy would answer isinstance() by
        # becoming what it stands for, hence type().
        for thing in gc.get_objects():
            if issubclass(type(thing), BaseDatabaseWrapper):
                self._created(thing)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        connection_created.disconnect(self._created)
        with self._lock:
            for connection, commit in reversed(self._hooked):
                connection.execute_wrappers.remove(self._execute)
                if commit is None:
                    del vars(connection)["commit"]
                else:
                    vars(connection)["commit"] = commit
            self._hooked.clear()

    def _created(self, connection: BaseDatabaseWrapper, **_: object) -> None:
        if connection.alias == self.using:
            self._hook(connection)

    def _hook(self, connection: BaseDatabaseWrapper) -> None:
        with self._lock:
            # A connection that is made anew is the same object.
            if self._execute in connection.execute_wrappers:
                return
            inner = connection.commit
            # The attribute of an outer block, to be put back; a method is none.
            self._hooked.append((connection, vars(connection).get("commit")))
            connection.execute_wrappers.append(self._execute)

        def commit() -> None:
            self._reached("before", "COMMIT", "COMMIT", connection)
            inner()
            self._reached("after", "COMMIT", "COMMIT", connection)

        vars(connection)["commit"] = commit

    def _execute(
        self,
        execute: Callable[[str, Any, bool, dict[str, Any]], Any],
        sql: str,
        params: Any,
        many: bool,
        context: dict[str, Any],
    ) -> Any:
        connection: BaseDatabaseWrapper = context["connection"]
        what = _what(str(sql))
        self._reached("before", what, sql, connection)
        result = execute(sql, params, many, context)
        self._reached("after", what, sql, connection)
        return result

    def _reached(
        self, moment: Moment, what: str, sql: str, connection: BaseDatabaseWrapper
    ) -> None:
        thread = threading.current_thread().name
        with self._lock:
            point = FaultPoint(len(self.points) + 1, moment, what, sql, thread)
            if not self._only(point):
                return
            self.points.append(point)
            if self.hit is None:
                if self._at not in (point.number, str(point)):
                    return
                self.hit = point
            if not self._left:
                return
            self._left -= 1
        self._fault(point, connection)


def _what(sql: str) -> str:
    words = sql.split(maxsplit=1)
    first = words[0].upper() if words else ""
    table = _TABLE.search(sql)
    return f"{first} {table[1]}" if table else first
