"""Where a reader of events begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.sse.resume import (
    InvalidPosition,
    Plan,
    ResumePoint,
    parse_position,
    plan,
    resume_point,
)

NOT_POSITIONS = [
    "",
    " ",
    "abc",
    "-1",
    "+1",
    "1.5",
    "2.0",
    "1e0",
    "0x1",
    "1_0",
    "1 0",
    "NaN",
    "٣",  # Arabic three, which int() takes
    "１",  # full-width one
    "1\x00",
    "\u00a01",
    "9" * 19,
]


@pytest.mark.parametrize("text", NOT_POSITIONS)
def test_what_is_not_1_to_18_ascii_digits_is_no_position(text: str) -> None:
    assert parse_position(text) is None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", 0),
        ("007", 7),
        (" 5 ", 5),
        ("5\n", 5),
        ("\t5\r\n", 5),
        ("9" * 18, 10**18 - 1),
    ],
)
def test_digits_with_blanks_around_them_are_a_position(
    text: str, position: int
) -> None:
    assert parse_position(text) == position


def test_a_start_argument_wins_over_header_and_query() -> None:
    assert resume_point(3, "9", "7") == ResumePoint(3)


def test_a_negative_start_is_the_beginning() -> None:
    assert resume_point(-5, None, None) == ResumePoint(0)


def test_the_last_event_id_was_seen_so_the_next_one_is_asked_for() -> None:
    assert resume_point(None, "9", "7") == ResumePoint(10, after_event=True)


def test_the_query_is_inclusive() -> None:
    assert resume_point(None, None, "7") == ResumePoint(7)


@pytest.mark.parametrize("header", NOT_POSITIONS)
def test_a_header_that_is_no_position_falls_through(header: str) -> None:
    assert resume_point(None, header, "7") == ResumePoint(7)
    assert resume_point(None, header, None) == ResumePoint(0)


@pytest.mark.parametrize("query", NOT_POSITIONS)
def test_a_query_that_is_no_position_is_refused(query: str) -> None:
    with pytest.raises(InvalidPosition):
        resume_point(None, None, query)


@pytest.mark.parametrize("query", NOT_POSITIONS)
def test_a_query_that_is_not_used_is_not_judged(query: str) -> None:
    assert resume_point(None, "9", query) == ResumePoint(10, after_event=True)
    assert resume_point(3, None, query) == ResumePoint(3)


def test_nothing_said_is_the_beginning() -> None:
    assert resume_point(None, None, None) == ResumePoint(0)


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("position", [0, 3, 5])
def test_a_position_up_to_the_cursor_is_where_it_begins(
    position: int, settled: bool
) -> None:
    assert plan(ResumePoint(position), 5, settled) == Plan(position)


def test_who_saw_the_last_chunk_but_not_the_end_gets_the_end() -> None:
    assert plan(ResumePoint(5, after_event=True), 5, True) == Plan(5)


def test_who_saw_the_end_gets_nothing_more() -> None:
    assert plan(ResumePoint(6, after_event=True), 5, True).end_seen


def test_the_end_of_a_live_stream_cannot_have_been_seen() -> None:
    assert plan(ResumePoint(6, after_event=True), 5, False) == Plan(0, reset=True)


def test_a_query_beyond_the_end_is_never_taken_for_having_seen_it() -> None:
    assert plan(ResumePoint(6), 5, True) == Plan(0, reset=True)


@given(st.integers(0, 20), st.booleans(), st.integers(0, 20), st.booleans())
def test_no_plan_leaves_a_gap(
    position: int, after_event: bool, cursor: int, settled: bool
) -> None:
    chosen = plan(ResumePoint(position, after_event), cursor, settled)
    assert chosen.start <= cursor
    if chosen.reset:
        assert chosen.start == 0
        assert position > cursor
    elif not chosen.end_seen:
        assert chosen.start == position
