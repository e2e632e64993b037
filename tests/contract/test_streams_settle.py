"""close() and error(): once, together with the caller's writes or not at all."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from django_streams import (
    StreamClosedError,
    StreamNotFoundError,
    Streams,
    StreamState,
    StreamStatus,
)

from .conftest import Follow
from .stores import DatabaseUnderTest, StoreUnderTest
from .waiting import WITHIN, holds, in_thread


def status_of(streams: Streams, stream_id: str) -> StreamStatus:
    status = streams.status(stream_id)
    assert status is not None
    return status


def test_close_completes_the_stream_once(streams: Streams) -> None:
    writer, other = streams.open("s"), streams.open("s")
    writer.append("a")
    assert writer.close() is True
    first = status_of(streams, "s")
    assert first.state is StreamState.COMPLETED
    assert first.error is None
    assert first.closed_at is not None
    assert first.created_at <= first.updated_at <= first.closed_at
    again = [writer.close(), other.close(), other.error("late"), writer.error()]
    assert again == [False] * 4
    assert status_of(streams, "s") == first


@pytest.mark.parametrize("reason", ["broken", "", "déjà\u2028vu \U0001f600", None])
def test_error_keeps_its_reason(streams: Streams, reason: str | None) -> None:
    writer = streams.open("s")
    writer.append("a")
    assert writer.error(reason) is True
    status = status_of(streams, "s")
    assert status.state is StreamState.ERRORED
    assert status.error == reason
    assert writer.close() is False
    assert writer.error("another") is False
    assert status_of(streams, "s") == status
    assert [c.chunk for c in streams.read("s")] == ["a"]


def test_error_without_arguments_has_no_reason(streams: Streams) -> None:
    streams.open("s").error()
    assert status_of(streams, "s").error is None


def test_a_reason_that_a_database_cannot_hold_still_settles(streams: Streams) -> None:
    """An error's text may come from anywhere; the stream must end all the same."""
    writer = streams.open("s")
    assert writer.error("before\x00\ud800after") is True
    error = status_of(streams, "s").error
    assert error is not None
    assert error.startswith("before")
    assert error.endswith("after")


@pytest.mark.parametrize("reason", [5, ValueError("x"), b"bytes"])
def test_a_reason_that_is_no_text_is_refused(streams: Streams, reason: Any) -> None:
    writer = streams.open("s")
    with pytest.raises(TypeError):
        writer.error(reason)
    assert writer.append("still live") == 0


@pytest.mark.parametrize("settle", ["close", "error"])
def test_commit_runs_once(streams: Streams, settle: str) -> None:
    ran: list[str] = []
    writer = streams.open("s")
    assert getattr(writer, settle)(commit=lambda: ran.append("first")) is True
    assert writer.close(commit=lambda: ran.append("second")) is False
    assert writer.error(commit=lambda: ran.append("third")) is False
    assert ran == ["first"]


def test_settling_twice_discards_nothing(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append("a")
    writer.close()
    assert writer.close(discard=True) is False
    assert writer.error(discard=True) is False
    assert [c.chunk for c in streams.read("s")] == ["a"]


@pytest.mark.parametrize(("settle", "discard"), [("close", True), ("error", False)])
def test_a_commit_that_raises_leaves_a_live_stream(
    streams: Streams, follow: Follow, settle: str, discard: bool
) -> None:
    writer = streams.open("s")
    writer.extend(["a", "b"])
    reader = follow("s")
    reader.wait_for(2)

    def refuse() -> None:
        raise LookupError("no room in the archive")

    with pytest.raises(LookupError, match="no room"):
        getattr(writer, settle)(commit=refuse, discard=discard)
    status = status_of(streams, "s")
    assert (status.state, status.closed_at, status.error) == ("streaming", None, None)
    assert holds(lambda: not reader.end.done())
    assert writer.append("c") == 2
    assert getattr(writer, settle)(commit=lambda: None) is True
    assert reader.finish() == ["a", "b", "c"]


@pytest.mark.parametrize("settle", ["close", "error"])
def test_discard_leaves_nothing_of_the_stream(streams: Streams, settle: str) -> None:
    ran: list[str] = []
    writer = streams.open("s")
    writer.extend(["a", "b"])
    done = getattr(writer, settle)(discard=True, commit=lambda: ran.append("x"))
    assert (done, ran) == (True, ["x"])
    assert streams.status("s") is None
    assert not streams.list()
    with pytest.raises(StreamNotFoundError):
        list(streams.read("s"))
    assert writer.close(commit=lambda: ran.append("y")) is False
    assert writer.error() is False
    assert ran == ["x"]


def test_a_discarded_stream_leaves_no_rows(db_store: DatabaseUnderTest) -> None:
    streams = db_store.streams()
    keep, drop = streams.open("keep"), streams.open("drop")
    for number in range(20):
        keep.append(number)
        drop.append(number)
    drop.close(discard=True)
    assert db_store.blocks("drop") == []
    assert db_store.all_blocks() == len(db_store.blocks("keep")) > 0


def test_settling_a_deleted_stream_does_nothing(streams: Streams) -> None:
    ran: list[str] = []
    writer = streams.open("s")
    streams.open("s").close(discard=True)
    assert writer.close(commit=lambda: ran.append("x")) is False
    assert writer.error("late", commit=lambda: ran.append("x")) is False
    assert ran == []
    assert streams.status("s") is None


def test_a_commit_that_must_be_awaited_is_refused(streams: Streams) -> None:
    async def commit() -> None:
        raise AssertionError("never awaited, never run")

    writer = streams.open("s")
    with pytest.raises(TypeError):
        writer.close(commit=commit)
    with pytest.raises(TypeError):
        writer.error(commit=commit)
    assert status_of(streams, "s").state is StreamState.STREAMING
    assert writer.close() is True


@pytest.mark.parametrize("settle", ["close", "error"])
def test_attached_readers_end_when_the_stream_settles(
    streams: Streams, follow: Follow, settle: str
) -> None:
    writer = streams.open("s")
    readers = [follow("s"), follow("s", start=1), follow("s", start=5)]
    writer.extend(["a", "b"])
    assert readers[0].wait_for(2) == ["a", "b"]
    assert not any(reader.end.done() for reader in readers)
    getattr(writer, settle)()
    assert [r.finish() for r in readers] == [["a", "b"], ["b"], []]


def test_a_reader_at_the_tail_learns_that_the_stream_was_discarded(
    streams: Streams, follow: Follow
) -> None:
    writer = streams.open("s")
    writer.append("a")
    reader = follow("s")
    reader.wait_for(1)
    writer.close(discard=True)
    with pytest.raises(StreamClosedError) as caught:
        reader.finish()
    assert caught.value.code == "deleted"
    assert reader.values == ["a"]


def test_of_two_that_settle_at_once_exactly_one_does(store: StoreUnderTest) -> None:
    streams = store.streams()
    for number in range(12):
        name = f"race {number}"
        one, two = streams.open(name), streams.open(name)
        commits: list[str] = []
        closing = in_thread(one.close, commit=partial(commits.append, "close"))
        failing = in_thread(two.error, "stop", commit=partial(commits.append, "error"))
        closed, errored = closing.result(WITHIN), failing.result(WITHIN)
        assert (closed, errored) in {(True, False), (False, True)}
        assert commits == ["close" if closed else "error"]
        status = status_of(streams, name)
        expected = ("completed", None) if closed else ("errored", "stop")
        assert (status.state, status.error) == expected
