"""The floors of the store: the bare driver, one connection, the same statements.

The statements are taken from the library, not copied: one synchronous append is
watched, and what it sent is sent again, with the next chunk and position.
"""

from __future__ import annotations

import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import psycopg
from django.db import connections

from django_streams import Streams, codec, ids

from . import payload

_TABLES = "django_streams_"


class Statement:
    """SQL whose parameters are constants, but for the position and the text."""

    def __init__(
        self, sql: str, first: Sequence[Any], second: Sequence[Any], texts: list[str]
    ) -> None:
        """*first* and *second*: parameters of appends at 0 and at 1."""
        self.sql = sql
        self.parameters = list(first)
        pairs = list(zip(first, second, strict=True))
        self.positions = [i for i, pair in enumerate(pairs) if pair == (0, 1)]
        self.bodies = [
            i for i, pair in enumerate(pairs) if [_text(v) for v in pair] == texts
        ]
        known = {*self.positions, *self.bodies}
        if any(a != b for i, (a, b) in enumerate(pairs) if i not in known):
            raise RuntimeError(f"cannot tell what changes in {sql} {pairs}")
        self.binary = any(isinstance(first[i], bytes) for i in self.bodies)

    def at(self, position: int, text: str) -> list[Any]:
        """The parameters of the append of *text* at *position*."""
        for i in self.positions:
            self.parameters[i] = position
        for i in self.bodies:
            self.parameters[i] = text.encode() if self.binary else text
        return self.parameters


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def watched(alias: str) -> list[Statement]:
    """The statements of an append to a new stream, which holds two chunks then."""
    writer = Streams(using=alias).open(ids.new_id())
    chunks = payload.chunks(2)
    seen: list[list[tuple[str, Sequence[Any]]]] = []

    def watch(execute: Any, sql: str, parameters: Any, *rest: Any) -> Any:
        if _TABLES in sql:
            seen[-1].append((sql, list(parameters)))
        return execute(sql, parameters, *rest)

    with connections[alias].execute_wrapper(watch):
        for chunk in chunks:
            seen.append([])
            writer.append(chunk)
    first, second = seen
    texts = [codec.encode(chunk) for chunk in chunks]
    statements = [
        Statement(sql, parameters, again, texts)
        for (sql, parameters), (_, again) in zip(first, second, strict=True)
    ]
    for role in ("positions", "bodies"):
        if not any(getattr(statement, role) for statement in statements):
            raise RuntimeError(f"an append on {alias} sends no {role}: {first}")
    return statements


class Floor(ABC):
    """Appends to one stream through the bare driver, one after the other."""

    def __init__(self, alias: str) -> None:
        self.statements = watched(alias)
        self.position = 2

    @abstractmethod
    def append(self, text: str) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    def rate(self, texts: Sequence[str], seconds: float) -> float:
        """Appends per second, over *seconds*."""
        append, count = self.append, len(texts)
        first = self.position
        start = now = time.perf_counter()
        while now - start < seconds:
            append(texts[self.position % count])
            self.position += 1
            now = time.perf_counter()
        return (self.position - first) / (now - start)


class BarePostgreSQL(Floor):
    """psycopg as it comes: autocommit, prepares what it has sent five times."""

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        (self._statement,) = self.statements
        settings = connections[alias].settings_dict
        self._connection = psycopg.connect(
            host=settings["HOST"],
            port=settings["PORT"],
            user=settings["USER"],
            password=settings["PASSWORD"] or None,
            dbname=settings["NAME"],
            autocommit=True,
        )
        self._execute: Any = self._connection.cursor().execute

    def append(self, text: str) -> None:
        statement = self._statement
        self._execute(statement.sql, statement.at(self.position, text))

    def close(self) -> None:
        self._connection.close()


class BareSQLite(Floor):
    """The sqlite3 module: the same statements in one immediate transaction."""

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self._steps = [
            (statement.sql.replace("%s", "?").replace("%%", "%"), statement)
            for statement in self.statements
        ]
        self._connection = sqlite3.connect(
            connections[alias].settings_dict["NAME"], isolation_level=None
        )
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=NORMAL")

    def append(self, text: str) -> None:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        for sql, statement in self._steps:
            execute(sql, statement.at(self.position, text))
        execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


FLOORS: dict[str, type[Floor]] = {"postgresql": BarePostgreSQL, "default": BareSQLite}
