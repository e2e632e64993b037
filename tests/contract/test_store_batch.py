"""A batch of appends as group commit hands it to a store."""

from __future__ import annotations

import random

from django_streams.exceptions import (
    StreamCancelledError,
    StreamClosedError,
    StreamFencedError,
)
from django_streams.ids import new_token
from django_streams.store import get_store
from django_streams.store.base import Append

from .holding import writes_held
from .stores import DatabaseUnderTest
from .test_streams_append import stored
from .waiting import WITHIN, in_thread

ROUNDS = 40


def entry(
    store: DatabaseUnderTest,
    stream_id: str,
    *texts: str,
    at: int = 0,
    epoch: int = 1,
    token: int = 7,
) -> Append:
    pk = store.row(stream_id).pk
    return Append(pk, stream_id, epoch, at, token, texts)


def test_each_entry_of_a_batch_has_an_answer_of_its_own(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    for name in ("one", "two", "ahead", "closed", "fenced", "cancelled", "gone"):
        streams.open(name)
    streams.open("ahead").extend(["x", "x"])
    streams.open("closed").close()
    streams.open("fenced", takeover=True)
    streams.cancel("cancelled")
    entries = [
        entry(db_store, "two", "1", "2", "3"),
        entry(db_store, "gone", "1"),
        entry(db_store, "ahead", "1"),
        entry(db_store, "closed", "1"),
        entry(db_store, "fenced", "1"),
        entry(db_store, "cancelled", "1"),
        entry(db_store, "one", '"a"'),
    ]
    streams.open("gone").close(discard=True)
    two, gone, ahead, closed, fenced, cancelled, one = get_store(
        db_store.alias
    ).append_batch(entries)
    assert (two, ahead, one) == (0, 2, 0)
    assert isinstance(gone, StreamClosedError)
    assert gone.code == "deleted"
    assert isinstance(closed, StreamClosedError)
    assert isinstance(fenced, StreamFencedError)
    assert isinstance(cancelled, StreamCancelledError)
    assert stored(streams, "two") == [1, 2, 3]
    assert stored(streams, "ahead") == ["x", "x", 1]
    assert stored(streams, "one") == ["a"]
    assert [block.writer for block in db_store.blocks("two")] == [7]
    assert db_store.blocks("fenced") == db_store.blocks("cancelled") == []
    assert entries[2].expected == 2, "where a retry must look"


def test_a_batch_renews_the_leases_of_its_streams(db_store: DatabaseUnderTest) -> None:
    streams = db_store.streams()
    for name in ("a", "b"):
        streams.open(name, lease=60)
    db_store.elapse(100)
    get_store(db_store.alias).append_batch(
        [entry(db_store, "a", "1"), entry(db_store, "b", "1")]
    )
    for name in ("a", "b"):
        status = streams.status(name)
        assert status is not None
        assert status.lease == "live"


def test_a_row_that_somebody_holds_is_left_out_and_holds_up_nobody(
    row_locking_store: DatabaseUnderTest,
) -> None:
    store = row_locking_store
    streams = store.streams()
    for name in ("free", "held", "free too"):
        streams.open(name)
    names = ("free", "held", "free too")
    with writes_held(store, "held"):
        both = in_thread(
            get_store(store.alias).append_batch, [entry(store, n, "1") for n in names]
        )
        assert both.result(WITHIN) == [0, None, 0]
        alone = in_thread(
            get_store(store.alias).append_batch, [entry(store, "held", "1")]
        )
        assert alone.result(WITHIN) == [None]
    assert stored(streams, "held") == []


def test_batches_in_any_order_neither_deadlock_nor_lose(
    db_store: DatabaseUnderTest,
) -> None:
    """What one of them did not get it asks for again, as the committer does."""
    streams = db_store.streams()
    names = [f"s{number}" for number in range(6)]
    for name in names:
        streams.open(name)
    store = get_store(db_store.alias)

    def produce(who: int) -> None:
        shuffled = random.Random(who)  # noqa: S311  (repeatable, not secret)
        token = new_token()
        at = dict.fromkeys(names, 0)
        for number in range(ROUNDS):
            waiting = shuffled.sample(names, len(names))
            while waiting:
                text = f"[{who}, {number}]"
                results = store.append_batch(
                    [
                        entry(db_store, name, text, at=at[name], token=token)
                        for name in waiting
                    ]
                )
                for name, seq in zip(list(waiting), results, strict=True):
                    if isinstance(seq, int):
                        at[name] = seq + 1
                        waiting.remove(name)
                    else:
                        assert seq is None

    running = [in_thread(produce, who) for who in range(3)]
    for future in running:
        future.result(2 * WITHIN)
    for name in names:
        log = stored(streams, name)
        for who in range(3):
            assert [n for w, n in log if w == who] == list(range(ROUNDS))
