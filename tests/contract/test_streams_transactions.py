"""Writes inside the caller's transaction; only stores in a database have one."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import transaction

from django_streams import (
    StreamClosedError,
    StreamNotFoundError,
    Streams,
    StreamSerializationError,
    StreamState,
)
from django_streams.feed import get_hub

from .conftest import Follow
from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .test_streams_settle import status_of
from .waiting import WITHIN, eventually, holds, in_thread


class Rollback(Exception):
    """Raised by a test to roll its transaction back."""


@pytest.fixture
def store(db_store: DatabaseUnderTest) -> DatabaseUnderTest:
    return db_store


def seen_outside(store: DatabaseUnderTest, stream_id: str) -> list[object]:
    """What another connection can read."""
    return in_thread(stored, store.streams(), stream_id).result(WITHIN)


def test_readers_see_an_append_when_its_transaction_commits(
    store: DatabaseUnderTest, follow: Follow
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.append("before")
    reader = follow("s")
    reader.wait_for(1)
    with transaction.atomic(using=store.alias):
        assert writer.append("inside") == 1
        assert writer.extend(["too", "three"]) == 2
        # Own writes are seen inside, nobody else's business yet.
        assert status_of(streams, "s").cursor == 4
        assert holds(lambda: reader.values == ["before"])
        assert seen_outside(store, "s") == ["before"]
    assert reader.wait_for(4) == ["before", "inside", "too", "three"]
    writer.close()
    assert reader.finish() == ["before", "inside", "too", "three"]


def test_readers_never_see_what_was_rolled_back(
    store: DatabaseUnderTest, follow: Follow
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.append("before")
    reader = follow("s")
    with pytest.raises(Rollback), transaction.atomic(using=store.alias):
        writer.append("never")
        writer.extend(["never", "never"])
        raise Rollback
    assert holds(lambda: reader.values == ["before"] or not reader.values)
    # The writer adopts the stored position; a producer's loop may begin there.
    assert writer.cursor == 1
    assert writer.append("after") == 1
    assert writer.cursor == 2
    writer.close()
    assert reader.finish() == ["before", "after"]


def test_a_savepoint_that_is_rolled_back_takes_only_its_own(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    with transaction.atomic(using=store.alias):
        writer.append("outer")
        with pytest.raises(Rollback), transaction.atomic(using=store.alias):
            writer.append("inner")
            raise Rollback
        assert writer.append("outer again") == 1
        with transaction.atomic(using=store.alias):
            writer.append("kept")
    writer.append("after")
    assert stored(streams, "s") == ["outer", "outer again", "kept", "after"]


def test_pushed_chunks_are_part_of_the_transaction_that_flushes_them(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    with transaction.atomic(using=store.alias):
        for number in range(25):
            writer.push(number)
        writer.flush()
        assert seen_outside(store, "s") == []
    assert stored(streams, "s") == list(range(25))


def test_a_push_in_flight_and_a_transaction_do_not_wait_for_each_other(
    store: DatabaseUnderTest,
) -> None:
    """The push is on another connection; on SQLite it needs the lock we hold."""
    streams = store.streams()
    writer = streams.open("s")
    expected: list[str] = []
    begun = time.monotonic()
    for number in range(15):
        for name in ("first", "second"):
            writer.push(f"{name} {number}")
        with transaction.atomic(using=store.alias):
            writer.append(f"inside {number}")
        expected += [f"first {number}", f"second {number}", f"inside {number}"]
    assert stored(streams, "s") == expected
    assert time.monotonic() - begun < WITHIN, "they waited for a timeout"


def test_opening_is_undone_by_a_rollback(store: DatabaseUnderTest) -> None:
    streams = store.streams()
    with pytest.raises(Rollback), transaction.atomic(using=store.alias):
        streams.open("s").append("never")
        assert in_thread(streams.status, "s").result(WITHIN) is None
        raise Rollback
    assert streams.status("s") is None
    with pytest.raises(StreamNotFoundError):
        list(streams.read("s"))
    assert streams.open("s").append("a") == 0


@pytest.mark.parametrize(("settle", "discard"), [("close", False), ("error", True)])
def test_settling_is_undone_by_a_rollback(
    store: DatabaseUnderTest, follow: Follow, settle: str, discard: bool
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.append("a")
    reader = follow("s")
    reader.wait_for(1)
    ran: list[str] = []

    def commit() -> None:
        ran.append("x")

    with pytest.raises(Rollback), transaction.atomic(using=store.alias):
        assert getattr(writer, settle)(commit=commit, discard=discard) is True
        raise Rollback
    assert holds(lambda: not reader.end.done())
    assert status_of(streams, "s").state is StreamState.STREAMING
    assert writer.append("b") == 1
    # The first settlement never was, so the second is the first.
    assert getattr(writer, settle)(commit=commit) is True
    assert ran == ["x", "x"]
    assert reader.finish() == ["a", "b"]


def test_a_commit_that_raises_undoes_only_the_settlement(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams()
    writer = streams.open("s")

    def refuse() -> None:
        raise LookupError("no room in the archive")

    with transaction.atomic(using=store.alias):
        writer.append("a")
        with pytest.raises(LookupError, match="no room"):
            writer.close(commit=refuse, discard=True)
        assert writer.append("b") == 1
    assert stored(streams, "s") == ["a", "b"]
    assert status_of(streams, "s").state is StreamState.STREAMING


def test_readers_learn_the_end_when_the_transaction_commits(
    store: DatabaseUnderTest, follow: Follow
) -> None:
    writer = store.streams().open("s")
    writer.append("a")
    reader = follow("s")
    reader.wait_for(1)
    with transaction.atomic(using=store.alias):
        writer.append("b")
        assert writer.close() is True
        assert writer.close() is False
        assert holds(lambda: not reader.end.done())
    assert reader.finish() == ["a", "b"]


def test_deleting_is_undone_by_a_rollback(store: DatabaseUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.append("a")
    writer.close()
    with pytest.raises(Rollback), transaction.atomic(using=store.alias):
        assert streams.delete("s") is True
        assert streams.status("s") is None
        raise Rollback
    assert [c.chunk for c in streams.read("s")] == ["a"]


def test_cancelling_is_undone_by_a_rollback(store: DatabaseUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    with pytest.raises(Rollback), transaction.atomic(using=store.alias):
        assert streams.cancel("s") is True
        raise Rollback
    assert writer.append("a") == 0
    assert writer.cancelled is False


def test_a_transaction_on_another_database_is_another_transaction(
    postgresql_store: DatabaseUnderTest, sqlite_store: DatabaseUnderTest
) -> None:
    writer = postgresql_store.streams().open("s")
    with transaction.atomic(using=sqlite_store.alias):
        writer.append("a")
        assert seen_outside(postgresql_store, "s") == ["a"]


def test_a_refused_chunk_does_not_break_the_transaction(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    settled = streams.open("settled")
    settled.close()
    with transaction.atomic(using=store.alias):
        writer.append("a")
        with pytest.raises(StreamSerializationError):
            writer.append({1})
        with pytest.raises(StreamClosedError):
            settled.append("x")
        assert streams.delete("unknown") is False
        writer.append("b")
    assert stored(streams, "s") == ["a", "b"]


def test_appends_of_one_transaction_hold_up_no_other_stream(
    row_locking_store: DatabaseUnderTest,
) -> None:
    """On SQLite they do: it has one writer at a time for the whole database."""
    store = row_locking_store
    streams = store.streams()
    mine, other = streams.open("mine"), streams.open("other")
    with transaction.atomic(using=store.alias):
        mine.append("a")
        assert in_thread(other.append, "b").result(WITHIN) == 0
        assert seen_outside(store, "mine") == []
    assert seen_outside(store, "mine") == ["a"]


def test_two_views_in_transactions_share_one_stream(store: DatabaseUnderTest) -> None:
    """The second waits for the first and continues after it, or after nothing."""
    streams = store.streams()
    streams.open("s").append("first")
    started, leave = threading.Event(), threading.Event()

    def holding() -> None:
        with transaction.atomic(using=store.alias):
            store.streams().open("s").append("held")
            started.set()
            assert leave.wait(WITHIN)
            raise Rollback

    holder = in_thread(holding)
    assert started.wait(WITHIN)

    def waiting() -> int:
        with transaction.atomic(using=store.alias):
            return store.streams().open("s").append("second")

    waiter = in_thread(waiting)
    assert holds(lambda: not waiter.done(), seconds=0.2)
    leave.set()
    with pytest.raises(Rollback):
        holder.result(WITHIN)
    assert waiter.result(WITHIN) == 1
    assert stored(streams, "s") == ["first", "second"]


def test_what_a_transaction_reads_of_itself_reaches_no_other_reader(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    writer.extend([0, 1])
    first = in_thread(_all_of, db_store.streams())
    try:
        eventually(lambda: len(get_hub().feeds()) == 1)
        with pytest.raises(Rollback), transaction.atomic(using=db_store.alias):
            writer.extend(["ghost", "ghost", "ghost"])
            seen = streams.read("s")
            assert [next(seen).chunk for _ in range(5)] == [0, 1] + ["ghost"] * 3
            raise Rollback
        second = in_thread(_all_of, db_store.streams())
        writer.extend(["real", "real", "real"])
    finally:
        writer.close()
    assert first.result(WITHIN) == second.result(WITHIN) == [0, 1] + ["real"] * 3


def _all_of(streams: Streams) -> list[object]:
    return [chunk.chunk for chunk in streams.read("s")]


def test_the_cursor_is_the_stored_one_after_a_savepoint_was_rolled_back(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    with transaction.atomic(using=db_store.alias):
        writer.append("kept")
        with (
            pytest.raises(Rollback),
            transaction.atomic(using=db_store.alias),
        ):
            writer.append("lost")
            raise Rollback
    assert writer.cursor == 1
    with transaction.atomic(using=db_store.alias):
        with (
            pytest.raises(Rollback),
            transaction.atomic(using=db_store.alias),
        ):
            writer.append("lost")
            raise Rollback
        writer.append("kept")
    assert writer.cursor == 2
    assert stored(streams, "s") == ["kept", "kept"]
