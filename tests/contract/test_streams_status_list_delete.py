"""status(), list() and delete()."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from django_streams import StreamLiveError, Streams, StreamState
from django_streams.models import Stream

from .stores import DatabaseUnderTest, StoreUnderTest
from .test_streams_settle import status_of

ILLEGAL = ["", "x" * 257, "nul\x00", "line\n", "lone\ud800", "\x85"]


@pytest.mark.parametrize("stream_id", ["unknown", *ILLEGAL])
def test_an_id_that_no_stream_has_is_simply_not_found(
    streams: Streams, stream_id: str
) -> None:
    assert streams.status(stream_id) is None
    assert streams.delete(stream_id) is False
    assert streams.cancel(stream_id) is False
    assert streams.owner_of(stream_id) is None
    assert not streams.list(tag=stream_id)


@pytest.mark.parametrize("stream_id", [None, 5, b"bytes"])
@pytest.mark.parametrize("method", ["status", "delete", "cancel", "owner_of"])
def test_an_id_that_is_no_text_is_a_type_error(
    streams: Streams, method: str, stream_id: Any
) -> None:
    with pytest.raises(TypeError):
        getattr(streams, method)(stream_id)


def test_a_status_is_a_frozen_picture_of_one_moment(streams: Streams) -> None:
    writer = streams.open("s", tag="t", metadata={"a": 1})
    before = status_of(streams, "s")
    writer.append("x")
    assert (before.cursor, before.state) == (0, StreamState.STREAMING)
    after = status_of(streams, "s")
    assert (after.stream_id, after.cursor, after.tag) == ("s", 1, "t")
    with pytest.raises(dataclasses.FrozenInstanceError):
        after.cursor = 5  # type: ignore[misc]


def test_times_are_aware_and_in_order(streams: Streams) -> None:
    writer = streams.open("s")
    opened = status_of(streams, "s")
    assert opened.created_at.utcoffset() == timedelta()
    assert opened.created_at == opened.updated_at
    writer.append("x")
    appended = status_of(streams, "s")
    assert appended.created_at == opened.created_at
    assert appended.updated_at >= opened.updated_at
    writer.close()
    closed = status_of(streams, "s")
    assert closed.closed_at is not None
    assert closed.closed_at.utcoffset() == timedelta()
    assert closed.closed_at >= appended.updated_at


def test_a_state_compares_as_its_word(streams: Streams) -> None:
    writer = streams.open("s")
    assert status_of(streams, "s").state == "streaming"
    assert not status_of(streams, "s").state.settled
    writer.close()
    assert status_of(streams, "s").state == "completed"
    assert status_of(streams, "s").state.settled


def names(found: Any) -> list[str]:
    return [status.stream_id for status in found]


def test_the_newest_stream_comes_first(streams: Streams) -> None:
    assert names(streams.list()) == []
    for name in ("b", "a", "c"):
        streams.open(name)
    assert names(streams.list()) == ["c", "a", "b"]
    # Activity does not count, creation does.
    streams.open("b").append("x")
    found = streams.list()
    assert names(found) == ["c", "a", "b"]
    assert found[2] == status_of(streams, "b")
    assert len(found) == 3


def test_of_streams_of_one_moment_the_last_created_comes_first(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    for name in "abcd":
        streams.open(name)
    moment = db_store.row("a").created_at
    Stream.objects.using(db_store.alias).update(created_at=moment)
    assert names(streams.list()) == ["d", "c", "b", "a"]
    assert names(streams.list(limit=2)) == ["d", "c"]


def test_a_list_can_be_narrowed_by_state(streams: Streams) -> None:
    streams.open("live")
    streams.open("done").close()
    streams.open("failed").error("x")
    assert names(streams.list(state="streaming")) == ["live"]
    assert names(streams.list(state=StreamState.COMPLETED)) == ["done"]
    both = streams.list(state=["completed", StreamState.ERRORED])
    assert names(both) == ["failed", "done"]
    assert names(streams.list(state=("streaming",))) == ["live"]
    everything = ["failed", "done", "live"]
    assert names(streams.list(state=[])) == names(streams.list()) == everything


def test_the_latest_attempt_of_a_tag_is_found(streams: Streams) -> None:
    for number in range(3):
        streams.open(f"other {number}", tag="Reply")
        streams.open(f"attempt {number}", tag="reply")
        streams.open(f"untagged {number}")
    assert names(streams.list(tag="reply", limit=1)) == ["attempt 2"]
    assert names(streams.list(tag="reply")) == ["attempt 2", "attempt 1", "attempt 0"]
    streams.open("attempt 2").close()
    assert names(streams.list(tag="reply", state="completed")) == ["attempt 2"]
    assert names(streams.list(tag="rep")) == []


def test_a_list_has_at_most_a_hundred_by_default(store: StoreUnderTest) -> None:
    streams = store.streams()
    for number in range(102):
        streams.open(f"s{number}")
    assert names(streams.list()) == [f"s{n}" for n in range(101, 1, -1)]
    assert len(streams.list(limit=1000)) == 102


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"limit": -1}, ValueError),
        ({"limit": "5"}, TypeError),
        ({"state": "unknown"}, ValueError),
        ({"state": ["completed", "unknown"]}, ValueError),
        ({"tag": 5}, TypeError),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    streams: Streams, arguments: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        streams.list(**arguments)


@pytest.mark.parametrize("settle", ["close", "error"])
def test_a_settled_stream_is_deleted_once(streams: Streams, settle: str) -> None:
    writer, other = streams.open("s"), streams.open("other")
    writer.append("a")
    other.append("kept")
    getattr(writer, settle)()
    assert streams.delete("s") is True
    assert streams.delete("s") is False
    assert streams.status("s") is None
    assert names(streams.list()) == ["other"]
    other.close()
    assert [c.chunk for c in streams.read("other")] == ["kept"]


def test_a_live_stream_is_not_deleted(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append("a")
    with pytest.raises(StreamLiveError) as caught:
        streams.delete("s")
    assert (caught.value.code, caught.value.stream_id) == ("live", "s")
    assert writer.append("b") == 1
    writer.close()
    assert [c.chunk for c in streams.read("s")] == ["a", "b"]


def test_a_deleted_stream_leaves_no_rows(db_store: DatabaseUnderTest) -> None:
    streams = db_store.streams()
    writer = streams.open("s")
    for number in range(20):
        writer.append(number)
    writer.close()
    assert db_store.all_blocks() > 0
    streams.delete("s")
    assert db_store.all_blocks() == 0
    assert not Stream.objects.using(db_store.alias).exists()
