"""open(): create, share, refuse."""

from __future__ import annotations

from collections import UserString
from typing import Any

import pytest

from django_streams import (
    StreamClosedError,
    StreamConflictError,
    Streams,
    StreamSerializationError,
    StreamState,
)
from django_streams.exceptions import ChunkTooLargeError

from .stores import StoreUnderTest
from .waiting import WITHIN, in_thread


def test_an_unknown_id_becomes_an_empty_live_stream(streams: Streams) -> None:
    writer = streams.open("new")
    assert (writer.stream_id, writer.cursor, writer.epoch) == ("new", 0, 1)
    status = streams.status("new")
    assert status is not None
    assert status.state is StreamState.STREAMING
    assert (status.cursor, status.tag, status.metadata) == (0, None, None)
    assert (status.error, status.lease, status.closed_at) == (None, None, None)


def test_a_live_stream_opened_again_continues_at_its_cursor(streams: Streams) -> None:
    first = streams.open("again")
    first.extend(["a", "b"])
    second = streams.open("again")
    assert (second.cursor, second.epoch) == (2, first.epoch)
    assert second.append("c") == 2
    first.close()
    assert [c.chunk for c in streams.read("again")] == ["a", "b", "c"]


def test_a_producer_continues_after_a_restart(store: StoreUnderTest) -> None:
    writer = store.streams().open("restart", metadata={"run": 1})
    for i in range(3):
        writer.append({"step": i})
    del writer
    later = store.streams()
    resumed = later.open("restart")
    for i in range(resumed.cursor, 6):
        resumed.append({"step": i})
    resumed.close()
    assert [c.chunk["step"] for c in later.read("restart")] == list(range(6))
    status = later.status("restart")
    assert status is not None
    assert status.metadata == {"run": 1}


def test_metadata_of_a_reopened_stream_is_not_looked_at(streams: Streams) -> None:
    streams.open("meta", metadata={"a": 1})
    streams.open("meta", metadata={"a": 2})
    streams.open("meta", metadata={"bad": float("nan")})
    status = streams.status("meta")
    assert status is not None
    assert status.metadata == {"a": 1}


def test_reopening_with_the_same_tag_or_none_is_no_conflict(streams: Streams) -> None:
    streams.open("tagged", tag="t")
    streams.open("tagged", tag="t")
    streams.open("tagged")
    status = streams.status("tagged")
    assert status is not None
    assert status.tag == "t"


@pytest.mark.parametrize("first", ["one", None])
def test_reopening_with_another_tag_is_refused(
    streams: Streams, first: str | None
) -> None:
    streams.open("tagged", tag=first)
    with pytest.raises(StreamConflictError) as caught:
        streams.open("tagged", tag="two")
    assert caught.value.code == "conflict"
    assert caught.value.stream_id == "tagged"
    assert "two" in str(caught.value)
    if first:
        assert first in str(caught.value)
    status = streams.status("tagged")
    assert status is not None
    assert (status.tag, status.state) == (first, "streaming")


@pytest.mark.parametrize("settle", ["close", "error"])
def test_a_settled_stream_is_not_opened_again(streams: Streams, settle: str) -> None:
    getattr(streams.open("over", tag="one"), settle)()
    # The state is looked at before the tag.
    with pytest.raises(StreamClosedError) as caught:
        streams.open("over", tag="two")
    assert (caught.value.code, caught.value.stream_id) == ("closed", "over")
    assert {"close": "completed", "error": "errored"}[settle] in str(caught.value)
    with pytest.raises(StreamClosedError):
        streams.open("over", takeover=True)


@pytest.mark.parametrize("how", ["delete", "discard"])
def test_a_deleted_id_is_free_again_from_zero(streams: Streams, how: str) -> None:
    writer = streams.open("free", tag="old", metadata={"old": True})
    writer.extend([1, 2, 3])
    if how == "discard":
        writer.close(discard=True)
    else:
        writer.close()
        assert streams.delete("free") is True
    writer = streams.open("free")
    assert (writer.cursor, writer.epoch) == (0, 1)
    assert writer.append("new") == 0
    writer.close()
    assert [(c.seq, c.chunk) for c in streams.read("free")] == [(0, "new")]
    status = streams.status("free")
    assert status is not None
    assert (status.tag, status.metadata) == (None, None)


@pytest.mark.parametrize(
    "stream_id",
    [
        "",
        "x" * 257,
        "nul\x00",
        "line\nfeed",
        "tab\t",
        "del\x7f",
        "c1\x85",
        "lone\ud800",
        "lone\udfff",
    ],
)
def test_an_illegal_id_is_refused_in_words(streams: Streams, stream_id: str) -> None:
    with pytest.raises(ValueError, match="stream id"):
        streams.open(stream_id)
    assert not streams.list()


@pytest.mark.parametrize("stream_id", [None, 5, b"bytes", UserString("x"), ["x"]])
def test_an_id_that_is_no_text_is_a_type_error(
    streams: Streams, stream_id: Any
) -> None:
    with pytest.raises(TypeError):
        streams.open(stream_id)


def test_ids_are_exact_up_to_256_characters(streams: Streams) -> None:
    """Case, accents, composition, blanks and length all tell streams apart."""
    ids = ["a", "A", "á", "a\u0301", "a ", " a", "ß", "ss", "a/b", "a%b", "a:b"]
    ids += ["x" * 256, "x" * 255, "\U0001f600" * 256, "\u2028", "..", "0", "None"]
    for number, stream_id in enumerate(ids):
        streams.open(stream_id).append(number)
    for number, stream_id in enumerate(ids):
        status = streams.status(stream_id)
        assert status is not None
        assert (status.stream_id, status.cursor) == (stream_id, 1)
        assert next(iter(streams.read(stream_id))).chunk == number


@pytest.mark.parametrize("metadata", [None, {}, {"a": [1, {"b": None}]}])
def test_metadata_comes_back(streams: Streams, metadata: dict[str, Any] | None) -> None:
    streams.open("meta", metadata=metadata)
    status = streams.status("meta")
    assert status is not None
    assert status.metadata == metadata


def test_metadata_is_a_copy(streams: Streams) -> None:
    metadata = {"list": [1]}
    streams.open("meta", metadata=metadata)
    metadata["list"].append(2)
    for _ in range(2):
        status = streams.status("meta")
        assert status is not None
        assert status.metadata == {"list": [1]}
        status.metadata["list"].append(3)


@pytest.mark.parametrize("metadata", [[], "text", 1, [("a", 1)], True])
def test_metadata_that_is_no_dict_is_a_type_error(
    streams: Streams, metadata: Any
) -> None:
    with pytest.raises(TypeError, match="metadata"):
        streams.open("meta", metadata=metadata)
    assert streams.status("meta") is None


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"a": float("nan")}, "$.a"),
        ({"a": [0, b"x"]}, "$.a[1]"),
        ({"a": {1: 2}}, "$.a"),
    ],
)
def test_metadata_that_is_not_json_is_refused_with_its_path(
    streams: Streams, metadata: Any, path: str
) -> None:
    with pytest.raises(StreamSerializationError, match="metadata") as caught:
        streams.open("meta", metadata=metadata)
    assert caught.value.path.startswith(path)
    assert streams.status("meta") is None


def test_metadata_has_the_size_limit_of_a_chunk(
    store: StoreUnderTest,
) -> None:
    streams = store.streams(max_chunk_bytes=100)
    room = 100 - len('{"a":""}')
    streams.open("fits", metadata={"a": "x" * room})
    with pytest.raises(ChunkTooLargeError) as caught:
        streams.open("over", metadata={"a": "x" * (room + 1)})
    assert (caught.value.size, caught.value.limit) == (101, 100)
    assert streams.status("over") is None


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lease": 0}, ValueError),
        ({"lease": -1}, ValueError),
        ({"lease": float("nan")}, ValueError),
        ({"lease": float("inf")}, ValueError),
        ({"lease": 1e12}, ValueError),
        ({"lease": "30"}, TypeError),
        ({"on_lapse": "explode"}, ValueError),
        ({"tag": 5}, TypeError),
        ({"tag": "t" * 257}, ValueError),
        ({"tag": "nul\x00"}, ValueError),
        ({"owner": 5}, TypeError),
    ],
)
def test_options_that_no_store_could_keep_are_refused(
    streams: Streams, options: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        streams.open("bad", **options)
    assert streams.status("bad") is None


def test_the_owner_is_kept_from_the_first_opening(streams: Streams) -> None:
    streams.open("owned", owner="u:1")
    streams.open("owned", owner="u:2")
    streams.open("nobodys")
    assert streams.owner_of("owned") == "u:1"
    assert streams.owner_of("nobodys") == ""
    assert streams.owner_of("unknown") is None


def test_many_who_open_a_new_id_at_once_share_one_stream(store: StoreUnderTest) -> None:
    def produce(number: int) -> int:
        return store.streams().open("shared", tag="t").append(number)

    running = [in_thread(produce, number) for number in range(10)]
    seqs = [future.result(WITHIN) for future in running]
    assert sorted(seqs) == list(range(10))
    streams = store.streams()
    assert len(streams.list()) == 1
    streams.open("shared").close()
    assert sorted(c.chunk for c in streams.read("shared")) == list(range(10))


@pytest.mark.parametrize("limit", [0, -1])
def test_a_facade_with_a_senseless_limit_is_refused(limit: int) -> None:
    with pytest.raises(ValueError, match="max_chunk_bytes"):
        Streams(max_chunk_bytes=limit)
