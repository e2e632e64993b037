"""The test reader itself follows the grammar of the HTML standard."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.testing.sse import SSEComment, SSEEvent, SSEParser, parse_sse


def read(*pieces: bytes) -> list[SSEEvent | SSEComment]:
    parser = SSEParser()
    return [item for piece in pieces for item in parser.feed(piece)]


WIRE = (
    b"\xef\xbb\xbfretry: 10\n: hello\nid: 1\ndata: one\ndata:  two\n\n"
    b"event: x\r\ndata:\xc3\xa9\r\n\r\ndata\rid\r\rid: 9\n\nevent: lost\n\ndata: cut\n"
)
EVENTS = [
    SSEComment("hello"),
    SSEEvent("message", "one\n two", "1", "1"),
    SSEEvent("x", "é", "1", None),
    SSEEvent("message", "", "", ""),
]


def test_fields_comments_and_all_three_line_ends_are_understood() -> None:
    assert read(WIRE) == EVENTS


@given(st.lists(st.integers(0, len(WIRE)), max_size=12))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(WIRE)]
    pieces = [WIRE[a:b] for a, b in itertools.pairwise(borders)]
    assert read(*pieces) == EVENTS


def test_an_event_without_data_is_not_dispatched_but_its_id_counts() -> None:
    (event,) = read(b"id: 4\n\ndata: x\n\n")
    assert isinstance(event, SSEEvent)
    assert (event.id, event.own_id) == ("4", None)


def test_an_id_with_a_nul_is_ignored() -> None:
    (event,) = read(b"id: 4\ndata: a\nid: 5\x00\n\n")
    assert isinstance(event, SSEEvent)
    assert event.id == "4"


@pytest.mark.parametrize("value", [b"", b"1.5", b"-1", b"x", "٣".encode()])
def test_a_retry_that_is_not_digits_is_ignored(value: bytes) -> None:
    parser = SSEParser()
    assert list(parser.feed(b"retry: " + value + b"\n")) == []
    assert parser.retry is None


def test_bytes_that_are_no_utf8_become_replacement_characters() -> None:
    (event,) = read(b"data: a\xffb\n\n")
    assert isinstance(event, SSEEvent)
    assert event.data == "a\ufffdb"


async def test_pieces_from_anywhere_can_be_parsed() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"data: "
        yield b'{"a":1}\n\n:\n'

    assert [event.json() async for event in parse_sse(pieces())] == [{"a": 1}]
