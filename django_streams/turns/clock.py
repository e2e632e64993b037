"""The database's clock in the ORM: all lease arithmetic is done by it.

The SQL is the store's own and holds no value from outside.
"""

from __future__ import annotations

from typing import cast

from django.db.models import DateTimeField
from django.db.models.expressions import RawSQL

from ..store import get_store
from ..store.reading import ReadingStore


def now(alias: str) -> RawSQL:
    """The time of the statement, by the database."""
    return RawSQL(_store(alias).clock, (), DateTimeField())  # noqa: S611


def after(alias: str, seconds: float) -> RawSQL:
    """The time in *seconds*, by the database."""
    store = _store(alias)
    return RawSQL(store.after(store.clock, "%s"), (seconds,), DateTimeField())  # noqa: S611


def _store(alias: str) -> ReadingStore:
    return cast(ReadingStore, get_store(alias))
