"""Isolation levels and lock modes that a project may have chosen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from django_streams import StreamsError

from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .waiting import WITHIN, in_thread

REPEATABLE = "TRANSACTION ISOLATION LEVEL REPEATABLE READ"


def execute(store: DatabaseUnderTest, sql: str) -> None:
    with connections[store.alias].cursor() as cursor:
        cursor.execute(sql)


def test_racing_writers_under_repeatable_read_are_retried(
    postgresql_store: DatabaseUnderTest,
) -> None:
    """PostgreSQL raises there instead of waiting for the new version of the row."""
    store = postgresql_store
    store.streams().open("s")

    def produce(number: int) -> None:
        execute(store, f"SET SESSION CHARACTERISTICS AS {REPEATABLE}")
        writer = store.streams().open("s")
        for i in range(15):
            writer.append([number, i])

    running = [in_thread(produce, number) for number in range(4)]
    for future in running:
        future.result(2 * WITHIN)
    log = stored(store.streams(), "s")
    assert sorted(log) == [[number, i] for number in range(4) for i in range(15)]
    for number in range(4):
        assert [i for who, i in log if who == number] == list(range(15))


def test_a_conflict_inside_a_repeatable_read_transaction_is_explained(
    postgresql_store: DatabaseUnderTest,
) -> None:
    store = postgresql_store
    streams = store.streams()
    writer = streams.open("s")
    with (
        pytest.raises(StreamsError, match="REPEATABLE READ") as caught,
        transaction.atomic(using=store.alias),
    ):
        execute(store, f"SET {REPEATABLE}")
        assert store.row("s").cursor == 0
        in_thread(lambda: store.streams().open("s").append("other")).result(WITHIN)
        writer.append("mine")
    assert caught.value.stream_id == "s"
    assert writer.append("after") == 1
    assert stored(streams, "s") == ["other", "after"]


@pytest.fixture
def deferred(sqlite_store: DatabaseUnderTest) -> Iterator[BaseDatabaseWrapper]:
    """The SQLite connection of this thread as Django configures it by default."""
    connection = connections[sqlite_store.alias]
    connection.ensure_connection()
    mode = connection.transaction_mode  # type: ignore[attr-defined]
    connection.transaction_mode = None  # type: ignore[attr-defined]
    yield connection
    connection.transaction_mode = mode  # type: ignore[attr-defined]


@pytest.mark.usefixtures("deferred")
def test_appends_do_not_depend_on_the_transaction_mode_of_the_project(
    sqlite_store: DatabaseUnderTest,
) -> None:
    streams = sqlite_store.streams()
    writer = streams.open("s")

    def produce() -> None:
        connections["default"].ensure_connection()
        connections["default"].transaction_mode = None  # type: ignore[attr-defined]
        other = sqlite_store.streams().open("s")
        for _ in range(25):
            other.append("other")

    running = [in_thread(produce) for _ in range(3)]
    for _ in range(25):
        writer.append("mine")
    for future in running:
        future.result(2 * WITHIN)
    assert sorted(stored(streams, "s")) == ["mine"] * 25 + ["other"] * 75


@pytest.mark.usefixtures("deferred")
def test_a_deferred_transaction_that_has_read_is_explained(
    sqlite_store: DatabaseUnderTest,
) -> None:
    """SQLite refuses the upgrade at once, whatever the busy timeout."""
    streams = sqlite_store.streams()
    writer = streams.open("s")
    other = sqlite_store.streams().open("s")
    with (
        pytest.raises(StreamsError, match="transaction_mode") as caught,
        transaction.atomic(using="default"),
    ):
        assert sqlite_store.row("s").cursor == 0
        in_thread(other.append, "other").result(WITHIN)
        writer.append("mine")
    assert caught.value.stream_id == "s"
    assert writer.append("after") == 1
    assert writer.close() is True
    assert [c.chunk for c in streams.read("s")] == ["other", "after"]


@pytest.mark.usefixtures("deferred")
def test_a_deferred_transaction_that_only_writes_is_fine(
    sqlite_store: DatabaseUnderTest,
) -> None:
    streams = sqlite_store.streams()
    writer = streams.open("s")
    with transaction.atomic(using="default"):
        writer.append("a")
        writer.append("b")
    assert stored(streams, "s") == ["a", "b"]
