"""Frames of chunks: each made once, whoever sends it."""

from __future__ import annotations

import json

import pytest

from django_streams.chat.frames import PIECE, frames
from django_streams.chat.protocol import Response
from django_streams.spans import Slice, Span

RESPONSE = Response("q1")
TEXTS = [
    '{"type":"text-delta","delta":"plain"}',
    '"quotes \\" and \\u0000 and \u2028 and ü"',
    "[1,2.5,null]",
]


def span(count: int, first: int = 0) -> Span:
    return Span(first, [TEXTS[at % len(TEXTS)] for at in range(count)])


def made(part: Slice, head: str = RESPONSE.live) -> list[str]:
    return [frame for piece in frames(part, head) for frame in piece]


@pytest.mark.parametrize("count", [1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 7])
def test_a_frame_for_each_chunk_in_order(count: int) -> None:
    some = span(count, first=40)
    told = [json.loads(frame) for frame in made(some.after(40))]
    assert [frame["seq"] for frame in told] == list(range(40, 40 + count))
    assert [frame["body"] for frame in told] == list(some.texts)


@pytest.mark.parametrize("start", [0, 1, PIECE - 1, PIECE, PIECE + 1])
@pytest.mark.parametrize("stop", [PIECE, PIECE + 2, 2 * PIECE, 2 * PIECE + 9])
def test_a_part_of_a_span_has_the_frames_of_its_chunks(start: int, stop: int) -> None:
    some = span(2 * PIECE + 9)
    if start < stop:
        assert made(Slice(some, start, stop)) == made(some.after(0))[start:stop]


def test_live_and_replayed_frames_of_one_span_are_kept_apart() -> None:
    some = span(2)
    live = [json.loads(frame) for frame in made(some.after(0))]
    replayed = [json.loads(f) for f in made(some.after(0), RESPONSE.replayed)]
    assert replayed == [frame | {"replay": True} for frame in live]
    assert [json.loads(frame) for frame in made(some.after(0))] == live


def test_a_frame_is_made_once_for_all_sockets_of_a_reply() -> None:
    some = span(PIECE + 5)
    # Each socket has a writer of its own for the same reply.
    one = frames(some.after(0), Response("q1").live)
    other = frames(some.after(0), Response("q1").live)
    for mine, others in zip(one, other, strict=True):
        assert all(a is b for a, b in zip(mine, others, strict=True))


def test_no_more_than_a_piece_is_made_ahead_of_who_reads() -> None:
    some = span(20 * PIECE)
    reading = frames(some.after(0), RESPONSE.live)
    assert [len(next(reading)) for _ in range(3)] == [PIECE] * 3
