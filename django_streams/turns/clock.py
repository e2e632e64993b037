"""The database's clock in the ORM: all lease arithmetic is done by it.

The SQL is the store's own and holds no value from outside.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, F, Func
from django.db.models.expressions import RawSQL
from django.db.models.sql.compiler import SQLCompiler

from ..store import get_store
from ..store.database import aware
from ..store.reading import ReadingStore


def now(alias: str) -> RawSQL:
    """The time of the statement, by the database."""
    return RawSQL(_store(alias).clock, (), DateTimeField())  # noqa: S611


def after(alias: str, seconds: float) -> RawSQL:
    """The time in *seconds*, by the database."""
    store = _store(alias)
    return RawSQL(store.after(store.clock, "%s"), (seconds,), DateTimeField())  # noqa: S611


class Later(Func):
    """A time column plus so many seconds."""

    def __init__(self, column: str, seconds: float) -> None:
        super().__init__(F(column), output_field=DateTimeField())
        self._seconds = seconds

    def as_sql(
        self,
        compiler: SQLCompiler,
        connection: BaseDatabaseWrapper,
        function: str | None = None,
        template: str | None = None,
        arg_joiner: str | None = None,
        **extra_context: Any,
    ) -> tuple[str, tuple[Any, ...]]:
        column, params = compiler.compile(self.source_expressions[0])
        sql = _store(connection.alias).after(column, "%s")
        return sql, (*params, self._seconds)


def ago(alias: str, seconds: float) -> datetime:
    """The time *seconds* ago, by the database, as a value."""
    store = _store(alias)
    row = store.row(f"SELECT {store.clock}", [])
    assert row is not None
    return aware(row[0]) - timedelta(seconds=seconds)


def _store(alias: str) -> ReadingStore:
    return cast(ReadingStore, get_store(alias))
