"""What is different on MariaDB: locks, snapshots, packets, clocks, big columns."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import IntegrityError, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_streams import StreamsError
from django_streams.exceptions import ChunkTooLargeError, StreamUnavailableError
from django_streams.models import ChunkBlock, Stream
from django_streams.store import get_store
from django_streams.store.base import Append, Stored
from tests.unit.forks import exit_code

from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .test_streams_settle import status_of
from .waiting import WITHIN, holds, in_thread

REPEATABLE = "TRANSACTION ISOLATION LEVEL REPEATABLE READ"
PACKET = 16 * 1024 * 1024
"""max_allowed_packet of the server, unless somebody changed it."""


@pytest.fixture
def store(mariadb_store: DatabaseUnderTest) -> DatabaseUnderTest:
    return mariadb_store


def execute(store: DatabaseUnderTest, sql: str) -> list[tuple[object, ...]]:
    with connections[store.alias].cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall() or ())


@pytest.fixture
def session(store: DatabaseUnderTest) -> Iterator[Callable[[str], object]]:
    """Sets a variable of this thread's session; a new one follows the test."""
    yield lambda assignment: execute(store, f"SET SESSION {assignment}")
    connections[store.alias].close()


# --- locks and snapshots ------------------------------------------------------


def test_racing_writers_under_repeatable_read_lose_nothing(
    store: DatabaseUnderTest,
) -> None:
    store.streams().open("s")

    def produce(number: int) -> None:
        execute(store, f"SET SESSION {REPEATABLE}")
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


def test_an_append_sees_past_the_snapshot_of_its_transaction(
    store: DatabaseUnderTest,
) -> None:
    """And a read in it does not, which it says."""
    streams = store.streams()
    writer = streams.open("s")
    execute(store, f"SET {REPEATABLE}")
    with transaction.atomic(using=store.alias):
        assert store.row("s").cursor == 0
        in_thread(lambda: store.streams().open("s").append("other")).result(WITHIN)
        assert status_of(streams, "s").cursor == 0, "as of the first look"
        assert writer.append("mine") == 1
        with pytest.raises(StreamsError, match="REPEATABLE READ") as caught:
            stored(streams, "s")
        assert caught.value.code == "hole"
    assert stored(streams, "s") == ["other", "mine"]


def test_a_retry_sees_past_the_snapshot_of_its_transaction(
    store: DatabaseUnderTest,
) -> None:
    """What it looks for may have been stored since."""
    store.streams().open("s")
    engine = get_store(store.alias)
    lost = Append(store.row("s").pk, "s", 1, 0, 7, ("1",))
    execute(store, f"SET {REPEATABLE}")
    with transaction.atomic(using=store.alias):
        assert store.row("s").cursor == 0
        assert in_thread(engine.append, lost).result(WITHIN) == 0
        assert engine.append_again(lost) == 0
    assert stored(store.streams(), "s") == [1]


def test_a_batch_waits_for_no_row_that_is_not_in_it(store: DatabaseUnderTest) -> None:
    """Also in a table that is so small that the server would rather scan it."""
    streams = store.streams()
    for number in range(46):
        streams.open(f"s{number}")
    engine = get_store(store.alias)
    batch = [
        Append(store.row(f"s{number}").pk, f"s{number}", 1, 0, 7, ("1",))
        for number in range(20, 30)
    ]

    def append() -> list[Stored]:
        execute(store, "SET SESSION innodb_lock_wait_timeout = 1")
        # Where every row that is looked at is locked.
        execute(store, f"SET SESSION {REPEATABLE}")
        return engine.append_batch(batch)

    with transaction.atomic(using=store.alias):
        streams.open("s3").append("held")
        assert in_thread(append).result(WITHIN) == [0] * 10


@pytest.mark.parametrize("before", [[], ["committed"]])
@pytest.mark.parametrize("others", [1, 40])
@pytest.mark.parametrize("count", [5, 60])
def test_merging_and_deleting_wait_for_no_block_of_another_stream(
    store: DatabaseUnderTest, count: int, others: int, before: list[str]
) -> None:
    """Also where the server would rather scan, and where the other log is the next
    in the index and new: who waits there holds its own stream up."""
    streams = store.streams()
    for name in ("merged", *(f"held {number}" for number in range(others)), "gone"):
        streams.open(name)
    merged, gone = streams.open("merged"), streams.open("gone")
    for number in range(count):
        merged.append(number)
        gone.append(number)
    for chunk in before:
        streams.open("held 0").append(chunk)
    engine = get_store(store.alias)
    pk = store.row("merged").pk

    def work() -> tuple[int, bool]:
        execute(store, "SET SESSION innodb_lock_wait_timeout = 1")
        return engine.rollup(pk, None, count), gone.close(discard=True)

    with transaction.atomic(using=store.alias):
        for number in range(others):
            streams.open(f"held {number}").append("held")
        assert in_thread(work).result(WITHIN) == (count - 1, True)
    assert stored(streams, "merged") == list(range(count))


def test_a_settlement_sees_past_the_snapshot_of_its_transaction(
    store: DatabaseUnderTest,
) -> None:
    writer = store.streams().open("s")
    execute(store, f"SET {REPEATABLE}")
    with transaction.atomic(using=store.alias):
        assert store.row("s").cursor == 0
        in_thread(lambda: store.streams().open("s").close()).result(WITHIN)
        assert writer.close() is False


def test_a_refused_snapshot_is_explained(
    store: DatabaseUnderTest, session: Callable[[str], object]
) -> None:
    """Newer servers refuse by default what has changed since the snapshot."""
    streams = store.streams()
    writer = streams.open("s")
    session("innodb_snapshot_isolation = ON")
    execute(store, f"SET {REPEATABLE}")
    with (
        pytest.raises(StreamUnavailableError, match="as a whole") as caught,
        transaction.atomic(using=store.alias),
    ):
        assert store.row("s").cursor == 0
        in_thread(lambda: store.streams().open("s").append("other")).result(WITHIN)
        writer.append("mine")
    assert caught.value.stream_id == "s"
    assert writer.append("after") == 1
    assert stored(streams, "s") == ["other", "after"]


def test_of_two_transactions_that_deadlock_one_is_told_to_repeat(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams()
    for name in ("a", "b"):
        streams.open(name)
    both_hold = threading.Barrier(2)

    def produce(first: str, second: str) -> str:
        try:
            with transaction.atomic(using=store.alias):
                streams.open(first).append(first)
                both_hold.wait(WITHIN)
                streams.open(second).append(first)
        except StreamUnavailableError as error:
            assert "as a whole" in str(error)
            return "repeat"
        return "stored"

    one, two = in_thread(produce, "a", "b"), in_thread(produce, "b", "a")
    assert {one.result(WITHIN), two.result(WITHIN)} == {"stored", "repeat"}
    assert len(stored(streams, "a")) == len(stored(streams, "b")) == 1


def test_a_write_outlasts_the_time_that_the_server_waits_for_locks(
    store: DatabaseUnderTest,
) -> None:
    writer = store.streams().open("s")
    let_go = threading.Event()
    holding = threading.Event()

    def hold() -> None:
        with transaction.atomic(using=store.alias):
            store.streams().open("s").append("held")
            holding.set()
            assert let_go.wait(WITHIN)

    def wait() -> int:
        execute(store, "SET SESSION innodb_lock_wait_timeout = 1")
        return writer.append("mine")

    holder = in_thread(hold)
    assert holding.wait(WITHIN)
    waiter = in_thread(wait)
    assert holds(lambda: not waiter.done(), seconds=1.3)
    let_go.set()
    holder.result(WITHIN)
    assert waiter.result(WITHIN) == 1


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_a_lost_connection_is_replaced(store: DatabaseUnderTest, how: str) -> None:
    writer = store.streams().open("s")
    writer.append("a")
    if how == "killed":
        [(mine,)] = execute(store, "SELECT CONNECTION_ID()")
        in_thread(execute, store, f"KILL {mine}").result(WITHIN)
    else:
        number = connections[store.alias].connection.fileno()
        with socket.socket(fileno=os.dup(number)) as wire:
            wire.shutdown(socket.SHUT_RDWR)
    assert writer.append("b") == 1
    assert stored(store.streams(), "s") == ["a", "b"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_connections_of_other_threads_alone(
    store: DatabaseUnderTest,
) -> None:
    """The copy in the child must not say goodbye for the parent."""
    forked, connected = threading.Event(), threading.Event()

    def work() -> list[tuple[object, ...]]:
        seen = execute(store, "SELECT CONNECTION_ID()")
        connected.set()
        assert forked.wait(WITHIN)
        return [*seen, *execute(store, "SELECT CONNECTION_ID()")]

    worker = in_thread(work)
    assert connected.wait(WITHIN)
    pid = os.fork()
    if pid == 0:
        gc.collect()
        os._exit(0)
    assert exit_code(pid) == 0
    forked.set()
    before, after = worker.result(WITHIN)
    assert before == after


# --- packets ------------------------------------------------------------------


def test_a_chunk_that_no_packet_holds_is_refused_and_the_stream_goes_on(
    store: DatabaseUnderTest,
) -> None:
    """The server would cut the connection, and every retry would look like that."""
    assert execute(store, "SELECT @@max_allowed_packet") == [(PACKET,)]
    streams = store.streams(max_chunk_bytes=4 * PACKET)
    writer = streams.open("s")
    plain, doubled = "x" * PACKET, "\\" * (PACKET // 4)
    for chunk in (plain, doubled):
        with pytest.raises(ChunkTooLargeError, match="max_allowed_packet") as caught:
            writer.append(chunk)
        assert caught.value.limit == PACKET
    largest = "x" * (PACKET - 300_000)
    assert writer.append(largest) == 0
    assert writer.append("after") == 1
    assert stored(streams, "s") == [largest, "after"]


async def test_a_chunk_that_no_packet_holds_fails_alone_in_its_batch(
    store: DatabaseUnderTest,
) -> None:
    streams = store.streams(max_chunk_bytes=2 * PACKET)
    chunks = {"one": "a", "two": "x" * PACKET, "three": "c"}
    writers = {name: await streams.aopen(name) for name in chunks}
    appends = [writers[name].aappend(chunk) for name, chunk in chunks.items()]
    one, two, three = await asyncio.gather(*appends, return_exceptions=True)
    assert (one, three) == (0, 0)
    assert isinstance(two, ChunkTooLargeError)
    for name, log in (("one", ["a", 1]), ("two", [1]), ("three", ["c", 1])):
        await writers[name].aappend(1)
        await writers[name].aclose()
        assert [c.chunk async for c in streams.aread(name)] == log


# --- the clock ----------------------------------------------------------------


def test_times_are_in_utc_whatever_the_zone_of_the_session(
    store: DatabaseUnderTest, session: Callable[[str], object]
) -> None:
    session("time_zone = '+09:00'")
    streams = store.streams()
    writer = streams.open("s", lease=3600)
    writer.append("a")
    status = status_of(streams, "s")
    assert status.lease == "live"
    for time in (status.created_at, status.updated_at):
        assert abs(timezone.now() - time) < timedelta(minutes=1)
    lease = store.row("s").lease_expires_at
    assert lease is not None
    assert abs(lease - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)


def test_times_are_kept_to_the_microsecond(store: DatabaseUnderTest) -> None:
    writer = store.streams().open("s", lease=0.25)
    micros = set()
    for number in range(5):
        writer.append(number)
        row = store.row("s")
        micros.add(row.updated_at.microsecond % 1000)
        assert row.lease_expires_at == row.updated_at + timedelta(seconds=0.25)
    assert len(micros) > 1


# --- what is read -------------------------------------------------------------


def rows_read(store: DatabaseUnderTest) -> int:
    """How many rows this session has read so far, by the server's own count."""
    counts = execute(store, "SHOW SESSION STATUS LIKE 'Handler_read%'")
    return sum(int(str(value)) for _, value in counts)


def test_a_page_reads_no_more_rows_than_it_gives(store: DatabaseUnderTest) -> None:
    """LENGTH() of a body reads the body: a sum over a log would read all of it."""
    writer = store.streams().open("s")
    for number in range(300):
        writer.append(number)
    pk = store.row("s").pk
    engine = get_store(store.alias)
    for start, max_bytes, texts in ((150, 1, 1), (0, 30, 20)):
        before = rows_read(store)
        page = engine.page(pk, start, max_bytes)
        cost = rows_read(store) - before
        assert page is not None
        assert len(page.texts) == texts
        assert cost <= 20 + 10 * texts


def test_at_the_tail_no_block_is_looked_at(store: DatabaseUnderTest) -> None:
    """To know how long the last one is would be to read it."""
    store.streams().open("s").append("x" * 1000)
    pk = store.row("s").pk
    with CaptureQueriesContext(connections[store.alias]) as queries:
        page = get_store(store.alias).page(pk, 1, 1000)
    assert page is not None
    assert page.texts == []
    assert "chunkblock" not in "".join(query["sql"] for query in queries)


def test_a_log_of_many_small_blocks_is_read_in_pages(store: DatabaseUnderTest) -> None:
    """The servers end a recursion after a thousand steps."""
    writer = store.streams().open("s")
    pk = store.row("s").pk
    writer.append(0)
    template = ChunkBlock.objects.using(store.alias).get(stream=pk)
    ChunkBlock.objects.using(store.alias).bulk_create(
        ChunkBlock(stream_id=pk, seq_from=n, count=1, writer=1, body=b"%d" % n)
        for n in range(1, 2500)
    )
    assert template.seq_from == 0
    Stream.objects.using(store.alias).filter(pk=pk).update(cursor=2500)
    assert stored(store.streams(), "s") == list(range(2500))


def test_a_hole_in_the_log_is_told(store: DatabaseUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    for number in range(5):
        writer.append(number)
    ChunkBlock.objects.using(store.alias).filter(seq_from=2).delete()
    for start in (0, 2, 3):
        reader = streams.read("s", start=start, timeout=0.2)
        if start == 3:
            assert next(iter(reader)).chunk == 3
            continue
        with pytest.raises(StreamsError, match="hole at seq 2"):
            list(reader)


# --- the schema ---------------------------------------------------------------


def test_the_rules_of_the_tables_are_enforced(store: DatabaseUnderTest) -> None:
    store.streams().open("s").append("a")
    rows = Stream.objects.using(store.alias)
    blocks = ChunkBlock.objects.using(store.alias)
    for broken in (
        lambda: rows.update(state="dreaming"),
        lambda: rows.update(state="completed"),
        lambda: rows.update(cursor=-1),
        lambda: blocks.update(count=0),
        lambda: blocks.create(stream=rows.get(), seq_from=0, count=1, body=b"1"),
    ):
        with pytest.raises(IntegrityError), transaction.atomic(using=store.alias):
            broken()
