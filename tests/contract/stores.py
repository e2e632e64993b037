"""The stores that the contract suite runs over, seen from outside.

A new store is one entry in ``STORES``: it slots into every test. Tests talk to
the public API only; what they need beside it (time that passes, rows that can
be counted) is here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.db import connections, transaction

from django_streams import Streams
from django_streams.ids import stream_key
from django_streams.models import ChunkBlock, Stream
from django_streams.store.memory import MemoryStore

TIMES = (
    "created_at",
    "updated_at",
    "closed_at",
    "lease_expires_at",
    "cancel_requested",
    "expires_at",
)


class StoreUnderTest(ABC):
    """One store with its data, for one test."""

    name: ClassVar[str]

    @abstractmethod
    def streams(self, **options: Any) -> Streams:
        """A new facade over the same data, as a process has after a restart."""

    @abstractmethod
    def elapse(self, seconds: float) -> None:
        """Let time pass for everything stored so far, as its own clock sees it."""

    def close(self) -> None:  # noqa: B027 - most have nothing to do
        """Leave nothing behind; background work may still be going on."""


class MemoryUnderTest(StoreUnderTest):
    name = "memory"

    def __init__(self) -> None:
        self._ahead = timedelta()
        self._store = MemoryStore(clock=lambda: datetime.now(UTC) + self._ahead)

    def streams(self, **options: Any) -> Streams:
        return Streams(using=self._store, **options)

    def elapse(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class DatabaseUnderTest(StoreUnderTest):
    """A store in a database; rows are aged, since its clock cannot be moved."""

    alias: str

    def streams(self, **options: Any) -> Streams:
        return Streams(using=self.alias, **options)

    @property
    def vendor(self) -> str:
        return connections[self.alias].vendor

    def elapse(self, seconds: float) -> None:
        past = timedelta(seconds=seconds)
        with transaction.atomic(using=self.alias):
            for row in Stream.objects.using(self.alias).select_for_update():
                aged = {
                    name: value - past
                    for name in TIMES
                    if (value := getattr(row, name)) is not None
                }
                Stream.objects.using(self.alias).filter(pk=row.pk).update(**aged)

    def close(self) -> None:
        # With the rows locked first, no late merge of blocks comes in between.
        with transaction.atomic(using=self.alias):
            rows = Stream.objects.using(self.alias).select_for_update()
            pks = [row.pk for row in rows.order_by("pk")]
            ChunkBlock.objects.using(self.alias).filter(stream__in=pks).delete()
            Stream.objects.using(self.alias).filter(pk__in=pks).delete()

    def row(self, stream_id: str) -> Stream:
        return Stream.objects.using(self.alias).get(key=stream_key(stream_id))

    def blocks(self, stream_id: str) -> list[ChunkBlock]:
        rows = ChunkBlock.objects.using(self.alias)
        return list(rows.filter(stream__key=stream_key(stream_id)).order_by("seq_from"))

    def all_blocks(self) -> int:
        return ChunkBlock.objects.using(self.alias).count()


class SqliteUnderTest(DatabaseUnderTest):
    name = "sqlite"
    alias = "default"


class PostgresqlUnderTest(DatabaseUnderTest):
    name = "postgresql"
    alias = "postgresql"


class MariadbUnderTest(DatabaseUnderTest):
    name = "mariadb"
    alias = "mariadb"


@dataclass(frozen=True, slots=True)
class Entry:
    """A store of the suite: how to make it, and the alias it needs."""

    make: Callable[[], StoreUnderTest]
    alias: str | None


STORES = {
    "memory": Entry(MemoryUnderTest, None),
    "sqlite": Entry(SqliteUnderTest, "default"),
    "postgresql": Entry(PostgresqlUnderTest, "postgresql"),
    "mariadb": Entry(MariadbUnderTest, "mariadb"),
}
DATABASE_STORES = [name for name, entry in STORES.items() if entry.alias]
