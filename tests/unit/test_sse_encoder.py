"""Events as bytes, read back by a parser that follows the standard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import codec
from django_streams.spans import Slice, Span
from django_streams.sse import encoder
from django_streams.testing.sse import SSEComment, SSEEvent, SSEParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def read(data: bytes) -> list[SSEEvent | SSEComment]:
    return list(SSEParser().feed(data))


def one(data: bytes) -> SSEEvent:
    (item,) = read(data)
    assert isinstance(item, SSEEvent)
    return item


def raw(*texts: str, start: int = 0) -> list[Slice]:
    return [Span(start, texts).after(start)]


def test_a_chunk_is_an_id_line_a_data_line_and_a_blank_line() -> None:
    assert list(encoder.encode(raw('{"a":1}', start=7))) == [
        b'id: 7\ndata: {"a":1}\n\n'
    ]


def test_a_batch_is_one_write() -> None:
    (write,) = encoder.encode(raw("1", "2", "3"))
    assert [(e.id, e.data) for e in read(write)] == [  # type: ignore[union-attr]
        ("0", "1"),
        ("1", "2"),
        ("2", "3"),
    ]


def test_a_batch_with_much_text_is_cut_into_bounded_writes_at_chunk_borders() -> None:
    chunks = raw(*["x" * 40] * 10)
    writes = list(encoder.encode(chunks, limit=100))
    assert [write.count(b"id:") for write in writes] == [2, 2, 2, 2, 2]
    (whole,) = encoder.encode(chunks)
    assert b"".join(writes) == whole


def test_a_write_holds_at_most_so_many_events_whatever_the_spans() -> None:
    spans = [Span(0, ["1", "2", "3"]), Span(3, ["4"]), Span(4, ["5", "6", "7"])]
    parts = [span.after(span.first) for span in spans]
    writes = list(encoder.encode(parts, most=2))
    assert [write.count(b"id:") for write in writes] == [2, 2, 2, 1]
    (whole,) = encoder.encode(parts)
    assert b"".join(writes) == whole


def test_a_chunk_larger_than_the_limit_is_a_write_of_its_own() -> None:
    writes = list(encoder.encode(raw("1", "x" * 500, "2"), limit=100))
    assert [write.count(b"id:") for write in writes] == [2, 1]


def test_no_chunks_are_no_write() -> None:
    assert list(encoder.encode([])) == []


def test_a_slice_is_its_own_events_and_no_others() -> None:
    span = Span(5, ["1", '"é"', "2", "3"])
    whole = b"".join(encoder.encode([span.after(5)]))
    cuts = [Slice(span, i, i + 1) for i in range(4)]
    assert b"".join(b"".join(encoder.encode([cut])) for cut in cuts) == whole
    assert b"".join(encoder.encode(cuts)) == whole
    assert [e.id for e in read(b"".join(encoder.encode(cuts[1:3])))] == ["6", "7"]  # type: ignore[union-attr]


def test_small_slices_of_a_batch_are_one_write() -> None:
    spans = [Span(seq, [str(seq)]) for seq in range(4)]
    assert len(list(encoder.encode(span.after(span.first) for span in spans))) == 1


def test_a_span_is_encoded_once_for_all_readers() -> None:
    span = Span(0, ["1", "2"])
    (first,) = encoder.encode([span.after(0)])
    (again,) = encoder.encode([span.after(0)])
    assert first is again


@given(st.lists(JSON, min_size=1, max_size=5))
def test_every_json_value_comes_back_in_one_line_each(values: list[object]) -> None:
    texts = [codec.encode(value) for value in values]
    (write,) = encoder.encode(raw(*texts))
    events = read(write)
    assert [json.loads(e.data) for e in events] == values  # type: ignore[union-attr]
    # A naive reader's idea of lines is wider than the standard's.
    assert len(write.decode().splitlines()) == 3 * len(values)


@given(st.lists(st.text(), min_size=1, max_size=4))
def test_any_text_stays_within_its_event(texts: list[str]) -> None:
    writes = b"".join(encoder.encode(raw(*texts)))
    events = read(writes)
    assert [e.data.split("\n") for e in events] == [  # type: ignore[union-attr]
        text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for text in texts
    ]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\n\n", "\r\r"])
def test_line_ends_in_data_cannot_end_the_event(end: str) -> None:
    event = one(encoder.encode_event(f"a{end}data: b", event_id=1))
    assert event.data.startswith("a\n")
    assert event.data.endswith("data: b")


def test_a_line_end_in_an_event_name_cannot_begin_a_field() -> None:
    event = one(encoder.encode_event("{}", event="a\nid: 99"))
    assert (event.event, event.own_id) == ("a id: 99", None)


def test_a_lone_surrogate_costs_one_character_and_not_the_event() -> None:
    assert one(encoder.encode_event("a\ud800b")).data == "a?b"


def test_up_to_date_carries_no_id() -> None:
    event = one(encoder.up_to_date())
    assert (event.event, event.json(), event.own_id) == ("up-to-date", {}, None)


def test_reset_says_how_much_there_is_and_carries_no_id() -> None:
    event = one(encoder.reset(12))
    assert (event.event, event.json(), event.own_id) == ("reset", {"cursor": 12}, None)


def test_the_end_carries_an_id_one_past_the_last_chunk() -> None:
    event = one(encoder.done(5))
    assert (event.event, event.json(), event.own_id) == ("done", {}, "5")


@pytest.mark.parametrize("reason", [None, "", "no\nmore", "\u2028é\ud800", '"quoted"'])
def test_an_error_carries_its_reason_exactly(reason: str | None) -> None:
    event = one(encoder.error(reason, 3))
    assert (event.event, event.own_id) == ("error", "3")
    assert event.json() == {"reason": reason}


def test_retry_belongs_to_the_first_event() -> None:
    parser = SSEParser()
    (event,) = parser.feed(encoder.with_retry(encoder.up_to_date(), 1234))
    assert isinstance(event, SSEEvent)
    assert event.event == "up-to-date"
    assert parser.retries == [1234]


def test_a_heartbeat_ends_no_event() -> None:
    (item,) = read(encoder.HEARTBEAT)
    assert item == SSEComment("")
    # No blank line: one after an earlier id is an empty event to some clients.
    assert encoder.HEARTBEAT == b":\n"


def test_the_openai_client_survives_heartbeats_between_events() -> None:
    streaming = pytest.importorskip("openai._streaming", reason="openai is missing")
    wire = [
        *encoder.encode(raw('{"a":1}')),
        encoder.HEARTBEAT,
        encoder.HEARTBEAT,
        *encoder.encode(raw('{"b":2}', start=1)),
        encoder.HEARTBEAT,
        encoder.done(2),
    ]
    events = streaming.SSEDecoder().iter_bytes(iter(wire))
    assert [event.json() for event in events] == [{"a": 1}, {"b": 2}, {}]
