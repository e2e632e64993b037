"""The benchmark's chunks and the reading of its replies."""

from __future__ import annotations

import json

import pytest

from benchmarks import bare, payload
from benchmarks.floors import Statement
from benchmarks.storm import last_seq, seqs
from django_streams import codec
from django_streams.spans import Span
from django_streams.sse import encoder


@pytest.mark.parametrize("size", [100, 1000])
def test_every_chunk_has_exactly_the_size_that_was_asked(size: int) -> None:
    assert {len(text.encode()) for text in payload.texts(50, size)} == {size}


def test_chunks_differ_and_come_again_for_the_same_seed() -> None:
    assert len(set(payload.texts(50))) == 50
    assert payload.texts(50) == payload.texts(50)
    assert payload.texts(50) != payload.texts(50, seed=2)


@pytest.mark.parametrize("at", [0.5, 17.123456, 123456789.9])
@pytest.mark.parametrize("number", [0, 7, 10_000])
def test_a_stamped_chunk_has_that_size_and_its_time_is_found(
    at: float, number: int
) -> None:
    text = codec.encode(payload.stamped(at, number))
    assert len(text) == payload.CHUNK
    assert [float(found) for found in payload.STAMP.findall(text.encode())] == [at]


def test_a_replay_is_every_chunk_in_writes_of_a_batch() -> None:
    writes = bare.writes(250, 100)
    assert len(writes) == 3
    assert seqs(b"".join(writes)) == list(range(250))


def _framed(*writes: bytes) -> bytes:
    """As chunked transfer sends them, after a response's head."""
    frames = [b"%x\r\n%s\r\n" % (len(data), data) for data in writes]
    return b"HTTP/1.1 200 OK\r\nx: id: 9\r\n\r\n" + b"".join(frames)


def _events(*numbers: int) -> bytes:
    spans = [Span(number, ['"id: 5"']) for number in numbers]
    return b"".join(encoder.encode(span.after(span.first) for span in spans))


def test_seqs_are_found_across_the_frames_of_a_reply() -> None:
    data = _framed(encoder.with_retry(_events(3, 4), 1000), _events(5))
    assert seqs(data) == [3, 4, 5]


def test_a_cut_event_was_not_seen() -> None:
    data = _framed(_events(3, 4), _events(5))
    assert last_seq(data) == 5
    assert last_seq(data[:-5]) == 4


def test_a_statement_is_sent_again_with_the_next_position_and_text() -> None:
    statement = Statement("…", [7, 1, 0, 0, "a"], [7, 1, 1, 1, "b"], ["a", "b"])
    assert statement.at(5, "c") == [7, 1, 5, 5, "c"]


def test_a_statement_with_bytes_is_sent_bytes() -> None:
    statement = Statement("…", [0, b"a"], [1, b"b"], ["a", "b"])
    assert statement.at(5, "c") == [5, b"c"]


def test_a_statement_that_changes_otherwise_is_refused() -> None:
    with pytest.raises(RuntimeError, match="cannot tell"):
        Statement("…", [0, "token 1"], [1, "token 2"], ["a", "b"])


def test_what_an_agent_says_is_found_in_a_frame_with_its_time() -> None:
    text = payload.said(12.5, 3)
    assert len(text) == 50
    frame = json.dumps({"body": json.dumps({"delta": text})}).encode()
    assert payload.SAID.findall(frame) == [b"12.500000"]
