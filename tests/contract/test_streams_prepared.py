"""What goes past Django's cursor on connections of our own, and what may not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from django_streams.models import Stream
from django_streams.store import get_store
from django_streams.store.pool import get_pool
from django_streams.store.postgresql import PostgreSQLStore
from django_streams.store.prepared import PreparedStatements

from .stores import DatabaseUnderTest
from .waiting import eventually

ENOUGH = 8
"""Appends after which every statement of an append has been sent often."""


@pytest.fixture
def store(postgresql_store: DatabaseUnderTest) -> Iterator[DatabaseUnderTest]:
    engine = get_store(postgresql_store.alias)
    assert isinstance(engine, PostgreSQLStore)
    yield postgresql_store
    engine._prepared = PreparedStatements()


def on_a_kept_thread(store: DatabaseUnderTest, sql: str) -> list[tuple[Any, ...]]:
    """What *sql* gives on the kept connection of the one pool thread."""

    def work() -> list[tuple[Any, ...]]:
        with connections[store.alias].cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []

    return get_store(store.alias).submit(work).result(10)


@pytest.fixture
def one_thread(settings: Any, store: DatabaseUnderTest) -> None:
    settings.DJANGO_STREAMS = {**settings.DJANGO_STREAMS, "READ_POOL": 1}
    # The threads of the tests before have connections with statements of theirs.
    get_pool().close()
    eventually(lambda: not get_pool()._threads)


FORGET = "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$"
"""The session loses what it has prepared, and the driver does not notice."""

PREPARED = "SELECT statement FROM pg_prepared_statements"


async def read(store: DatabaseUnderTest, times: int) -> None:
    for _ in range(times):
        assert [c.chunk async for c in store.streams().aread("s")] == [1, 2]


@pytest.fixture
def settled(store: DatabaseUnderTest) -> None:
    writer = store.streams().open("s")
    writer.extend([1, 2])
    writer.close()


@pytest.mark.usefixtures("one_thread", "settled")
async def test_reads_on_a_kept_connection_are_prepared(
    store: DatabaseUnderTest,
) -> None:
    await read(store, ENOUGH)
    assert any("chunkblock" in sql for (sql,) in on_a_kept_thread(store, PREPARED))


@pytest.mark.usefixtures("one_thread", "settled")
async def test_behind_a_transaction_pooler_nothing_is_prepared(
    store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = on_a_kept_thread(store, PREPARED)
    known = connections.settings[store.alias]
    monkeypatch.setitem(known, "DISABLE_SERVER_SIDE_CURSORS", True)
    await read(store, ENOUGH)
    assert on_a_kept_thread(store, PREPARED) == before


@pytest.mark.usefixtures("one_thread", "settled")
async def test_a_pooler_that_nobody_told_of_is_found_out_once(
    store: DatabaseUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    await read(store, ENOUGH)
    with caplog.at_level(logging.WARNING, "django_streams.store"):
        for _ in range(2):
            # As a pooler does: the next statement meets another session.
            on_a_kept_thread(store, FORGET)
            await read(store, ENOUGH)
    warnings = [r.getMessage() for r in caplog.records if "pooler" in r.getMessage()]
    assert len(warnings) == 1
    assert "DISABLE_SERVER_SIDE_CURSORS" in warnings[0]


async def test_an_append_whose_statement_got_lost_is_stored_once(
    store: DatabaseUnderTest,
) -> None:
    writer = await store.streams().aopen("s")
    engine = get_store(store.alias)
    batch = engine.append_batch

    def after_losing(entries: Any) -> Any:
        if number == ENOUGH:
            with connections[store.alias].cursor() as cursor:
                cursor.execute(FORGET)
        return batch(entries)

    engine.append_batch = after_losing  # type: ignore[method-assign]
    try:
        for number in range(2 * ENOUGH):
            assert await writer.aappend(number) == number
    finally:
        del engine.append_batch
    await writer.aclose()
    seen = [c.chunk async for c in store.streams().aread("s")]
    assert seen == list(range(2 * ENOUGH))


@pytest.mark.usefixtures("one_thread", "settled")
async def test_a_table_that_a_migration_changes_is_read_on(
    store: DatabaseUnderTest,
) -> None:
    await read(store, ENOUGH)
    table = Stream._meta.db_table
    alter = f"ALTER TABLE {table} ALTER COLUMN state TYPE"
    on_a_kept_thread(store, f"{alter} text")
    try:
        await read(store, 2)
    finally:
        on_a_kept_thread(store, f"{alter} varchar(10)")
