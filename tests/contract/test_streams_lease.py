"""Leases, takeover and fencing: one producer at a time, and none for ever."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_streams import StreamFencedError, Streams, StreamState, StreamWriter
from django_streams.store import outages

from .conftest import Follow
from .stores import DatabaseUnderTest, StoreUnderTest
from .test_streams_append import stored
from .test_streams_settle import status_of
from .waiting import aeventually, eventually, holds, outside


def test_a_lease_is_live_until_its_time_is_over(store: StoreUnderTest) -> None:
    streams = store.streams()
    streams.open("s", lease=30)
    assert status_of(streams, "s").lease == "live"
    store.elapse(29)
    assert status_of(streams, "s").lease == "live"
    store.elapse(2)
    assert status_of(streams, "s").lease == "lapsed"


def test_a_stream_without_a_lease_has_none(streams: Streams) -> None:
    streams.open("s")
    assert status_of(streams, "s").lease is None


def test_a_settled_stream_has_no_lease(streams: Streams) -> None:
    streams.open("s", lease=30).close()
    assert status_of(streams, "s").lease is None


RENEWING: dict[str, Callable[[StreamWriter], Any]] = {
    "renew": lambda writer: writer.renew(),
    "append": lambda writer: writer.append("x"),
    "extend": lambda writer: writer.extend(["x", "y"]),
}


@pytest.mark.parametrize("how", list(RENEWING))
def test_renewing_and_appending_keep_a_lease_alive(
    store: StoreUnderTest, how: str
) -> None:
    streams = store.streams()
    writer = streams.open("s", lease=30)
    for seconds in (25, 25, 31, 300):
        store.elapse(seconds)
        # Also after the lapse, as long as nobody took over.
        RENEWING[how](writer)
        assert status_of(streams, "s").lease == "live"


def test_renewing_is_no_activity(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s", lease=30)
    store.elapse(3600)
    writer.renew()
    status = status_of(streams, "s")
    assert status.lease == "live"
    assert (status.updated_at - status.created_at).total_seconds() < 60


def test_takeover_fences_every_write_of_the_old_handle(streams: Streams) -> None:
    old = streams.open("s", lease=30)
    old.append("a")
    new = streams.open("s", takeover=True)
    assert (new.epoch, new.cursor) == (old.epoch + 1, 1)

    def push() -> None:
        old.push("x")
        old.flush()

    ran: list[str] = []
    writes: list[Callable[[], Any]] = [
        lambda: old.append("x"),
        lambda: old.extend(["x", "y"]),
        push,
        old.renew,
        lambda: old.close(commit=lambda: ran.append("x")),
        lambda: old.error("x", discard=True),
    ]
    for write in writes:
        with pytest.raises(StreamFencedError) as caught:
            write()
        assert (caught.value.code, caught.value.stream_id) == ("fenced", "s")
    assert ran == []
    assert new.append("b") == 1
    assert stored(streams, "s") == ["a", "b"]
    assert new.close() is True


def test_takeover_of_a_stream_without_a_lease_fences_too(streams: Streams) -> None:
    old = streams.open("s")
    new = streams.open("s", takeover=True)
    newest = streams.open("s", takeover=True)
    assert [w.epoch for w in (old, new, newest)] == [1, 2, 3]
    for writer in (old, new):
        with pytest.raises(StreamFencedError):
            writer.append("x")
    assert newest.append("a") == 0


def test_takeover_of_an_unknown_id_just_opens_it(streams: Streams) -> None:
    writer = streams.open("s", takeover=True, lease=30)
    assert (writer.epoch, writer.append("a")) == (1, 0)


def test_a_live_lease_is_shared_without_takeover(streams: Streams) -> None:
    one = streams.open("s", lease=30)
    two = streams.open("s")
    assert two.epoch == one.epoch
    assert [one.append("a"), two.append("b"), one.append("c")] == [0, 1, 2]
    assert status_of(streams, "s").lease == "live"


def test_takeover_starts_the_lease_anew(store: StoreUnderTest) -> None:
    streams = store.streams()
    streams.open("s", lease=30)
    store.elapse(45)
    assert status_of(streams, "s").lease == "lapsed"
    streams.open("s", lease=30, takeover=True)
    assert status_of(streams, "s").lease == "live"
    store.elapse(25)
    assert status_of(streams, "s").lease == "live"


def test_a_follower_settles_a_stream_whose_producer_died(
    streams: Streams, store: StoreUnderTest, follow: Follow
) -> None:
    died = store.streams().open("s", lease=100)
    died.extend(["a", "b"])
    reader = follow("s")
    reader.wait_for(2)
    # Lapsed, but not for more than one lease: it may only have been slow.
    store.elapse(150)
    assert status_of(streams, "s").lease == "lapsed"
    assert holds(lambda: not reader.end.done())
    store.elapse(60)
    assert reader.finish() == ["a", "b"]
    status = status_of(streams, "s")
    assert (status.state, status.error) == (StreamState.ERRORED, "interrupted")
    assert status.closed_at is not None
    assert status.lease is None


@pytest.mark.parametrize("after", [(101.0, 51.0), (1.0, 49.0)])
def test_a_producer_has_one_lease_to_come_back_after_its_database_did(
    streams: Streams,
    store: StoreUnderTest,
    follow: Follow,
    monkeypatch: pytest.MonkeyPatch,
    after: tuple[float, float],
) -> None:
    """Unless the outage was too short for a lease to lapse, which is renewed three
    times in its length; a store in memory is never away."""
    store.streams().open("s", lease=100).append("a")
    store.elapse(210)
    if isinstance(store, DatabaseUnderTest):
        monkeypatch.setattr(outages, "last", lambda alias: (99.0, 51.0))
        reader = follow("s")
        reader.wait_for(1)
        assert holds(lambda: not reader.end.done())
        monkeypatch.setattr(outages, "last", lambda alias: after)
        assert reader.finish() == ["a"]
    else:
        assert follow("s").finish() == ["a"]
    assert status_of(streams, "s").error == "interrupted"


def test_a_reader_who_comes_after_the_producer_died_is_told_too(
    streams: Streams, store: StoreUnderTest
) -> None:
    store.streams().open("s", lease=100).extend(["a", "b"])
    store.elapse(210)
    assert [c.chunk for c in streams.read("s")] == ["a", "b"]
    assert status_of(streams, "s").error == "interrupted"


def test_a_stream_that_is_to_wait_is_not_settled_by_followers(
    streams: Streams, store: StoreUnderTest, follow: Follow
) -> None:
    store.streams().open("s", lease=100, on_lapse="wait").append("a")
    reader = follow("s")
    reader.wait_for(1)
    store.elapse(100_000)
    assert holds(lambda: not reader.end.done())
    assert status_of(streams, "s").lease == "lapsed"
    successor = streams.open("s", takeover=True)
    successor.append("b")
    successor.close()
    assert reader.finish() == ["a", "b"]
    assert status_of(streams, "s").state is StreamState.COMPLETED


def test_a_stream_without_a_lease_is_never_settled_by_a_reader(
    streams: Streams, store: StoreUnderTest, follow: Follow
) -> None:
    writer = streams.open("s")
    writer.append("a")
    reader = follow("s")
    reader.wait_for(1)
    store.elapse(1_000_000)
    assert holds(lambda: not reader.end.done())
    writer.append("b")
    writer.close()
    assert reader.finish() == ["a", "b"]


def test_a_producer_that_was_only_slow_is_told_that_it_was_settled(
    streams: Streams, store: StoreUnderTest
) -> None:
    slow = store.streams().open("s", lease=100)
    slow.append("a")
    store.elapse(500)
    list(streams.read("s"))
    assert slow.close() is False
    assert status_of(streams, "s").error == "interrupted"


async def test_an_async_handle_renews_its_lease_by_itself(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s", lease=0.6)
    for _ in range(2):
        await outside(store.elapse, 1.0)
        await aeventually(lambda: alive(streams), within=5)
    await writer.aclose()


async def alive(streams: Streams) -> bool:
    status = await streams.astatus("s")
    assert status is not None
    return status.lease == "live"


def test_a_pushing_handle_renews_its_lease_by_itself(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s", lease=0.6)
    writer.push("a")
    writer.flush()
    for _ in range(2):
        store.elapse(1.0)
        eventually(lambda: status_of(streams, "s").lease == "live", within=5)
    writer.close()


def test_a_handle_that_only_appends_does_not(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s", lease=0.6)
    writer.append("a")
    store.elapse(1.0)
    assert holds(lambda: status_of(streams, "s").lease == "lapsed", seconds=0.5)
    writer.close()


async def test_a_renewing_handle_stops_when_it_is_superseded(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    old = await streams.aopen("s", lease=0.3)
    new = await outside(streams.open, "s", lease=100, takeover=True)
    with pytest.raises(StreamFencedError):
        await old.arenew()
    with pytest.raises(StreamFencedError):
        await old.aappend("x")
    await outside(store.elapse, 150)
    assert await outside(
        holds, lambda: status_of(streams, "s").lease == "lapsed", seconds=0.5
    )
    await outside(new.close)


def test_leases_go_by_the_clock_of_the_database(
    db_store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A web server whose clock is nine hours off changes nothing."""
    truly = datetime.now(UTC)
    monkeypatch.setattr(timezone, "now", lambda: truly + timedelta(hours=9))
    monkeypatch.setattr("time.time", lambda: truly.timestamp() - 9 * 3600)
    streams = db_store.streams()
    writer = streams.open("s", lease=30)
    writer.append("a")
    status = status_of(streams, "s")
    assert status.lease == "live"
    for moment in (status.created_at, status.updated_at):
        assert abs((moment - truly).total_seconds()) < 60
    writer.close()
    closed = status_of(streams, "s").closed_at
    assert closed is not None
    assert abs((closed - truly).total_seconds()) < 60
