"""A store's connection: doors, transactions, and running one statement."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TypeVar

from asgiref.sync import AsyncToSync, sync_to_async
from django.db import InterfaceError, OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.dateparse import parse_datetime

from .. import conf
from ..exceptions import StreamsError, StreamUsageError
from .base import StreamStore
from .pool import get_pool

R = TypeVar("R")

_admitted: ContextVar[weakref.ref[asyncio.Task[Any]] | None] = ContextVar(
    "django_streams_admitted", default=None
)
"""The task that was seen not to come through async_to_sync. To look costs as much
as the rest of an append on the loop; a context is copied to other tasks, so the
task is compared."""

STREAM = '"django_streams_stream"'
BLOCK = '"django_streams_chunkblock"'


class DatabaseStore(StreamStore):
    """What the stores on a Django connection share below their SQL."""

    @property
    def inline(self) -> bool:  # type: ignore[override]
        return conf.get().SINGLE_CONNECTION

    @property
    def background(self) -> bool:  # type: ignore[override]
        # The one connection may be in a transaction that others cannot see.
        return not conf.get().SINGLE_CONNECTION

    @property
    def connection(self) -> BaseDatabaseWrapper:
        return connections[self.alias]

    # Doors

    async def admit(self) -> None:
        if self.inline:
            return
        task = asyncio.current_task()
        known = _admitted.get()
        if known is not None and known() is task:
            return
        if getattr(AsyncToSync.executors, "current", None) is not None:
            # Called through async_to_sync: the caller's thread may hold a
            # transaction that our own connection could neither see nor join.
            await sync_to_async(self._refuse_atomic, thread_sensitive=True)()
        elif task is not None:
            # What async_to_sync runs is a task of its own, so this one never is.
            _admitted.set(weakref.ref(task))

    async def run(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return await self._await(lambda: work(*args, **kwargs), waits=False)

    async def run_waiting(self, work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        return await self._await(lambda: work(*args, **kwargs), waits=True)

    async def _await(self, work: Callable[[], R], *, waits: bool) -> R:
        if self.inline:
            return await sync_to_async(work, thread_sensitive=True)()
        await self.admit()
        return await asyncio.wrap_future(self.submit(work, waits=waits))

    def submit(self, work: Callable[[], R], *, waits: bool = False) -> Future[R]:
        return get_pool().submit(work, waits=waits)

    def _refuse_atomic(self) -> None:
        if self.in_atomic():
            raise StreamUsageError(
                "an async stream method was awaited through async_to_sync() inside "
                f"atomic() on {self.alias!r}; it uses a connection of its own and "
                "would not be part of that transaction: call the sync method, or, in "
                'a TestCase, set DJANGO_STREAMS = {"SINGLE_CONNECTION": True}'
            )

    # Transactions

    def in_atomic(self) -> bool:
        return self.connection.in_atomic_block

    @contextmanager
    def atomic(self) -> Iterator[None]:
        with transaction.atomic(using=self.alias):
            yield

    def on_commit(self, work: Callable[[], object]) -> None:
        transaction.on_commit(work, using=self.alias)

    def transient(self, error: Exception) -> bool:
        return isinstance(error, (OperationalError, InterfaceError))

    def away(self, error: Exception) -> bool:
        return self.transient(error)

    def explain(self, error: Exception) -> StreamsError | None:
        return None

    def reset(self) -> None:
        if not self.connection.in_atomic_block:
            self.connection.close()

    # Statements

    def _sql(self, text: str) -> str:
        """The statement in this vendor's quoting (written with ANSI quotes)."""
        return text

    def _cursor(self) -> AbstractContextManager[Any]:
        return self.connection.cursor()

    def execute(self, text: str, params: Sequence[Any]) -> int:
        """Run one statement; how many rows it touched."""
        with self._cursor() as cursor:
            cursor.execute(self._sql(text), params)
            return int(cursor.rowcount)

    def rows(self, text: str, params: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._cursor() as cursor:
            cursor.execute(self._sql(text), params)
            return list(cursor.fetchall())

    def row(self, text: str, params: Sequence[Any]) -> tuple[Any, ...] | None:
        rows = self.rows(text, params)
        return rows[0] if rows else None


def aware(value: datetime | str) -> datetime:
    """A stored time as an aware UTC datetime; the database's clock is in UTC."""
    parsed = parse_datetime(value) if isinstance(value, str) else value
    if parsed is None:
        raise StreamsError(f"the database returned {value!r} for a time", code="clock")
    return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def aware_or_none(value: datetime | str | None) -> datetime | None:
    return None if value is None else aware(value)
