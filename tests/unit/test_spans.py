"""What readers share: spans, the window of a live stream, pages read lately."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import conf
from django_streams.pages import Pages
from django_streams.spans import Slice, Span, joined
from django_streams.ticks import next_tick
from django_streams.window import Window

STREAM = ("default", 1)


def read(parts: list[Slice]) -> list[tuple[int, str]]:
    return [
        (seq, text) for part in parts for seq, text in enumerate(part.texts, part.first)
    ]


def test_a_slice_knows_where_it_begins_and_what_it_holds() -> None:
    part = Span(5, ["a", "bb", "ccc"]).after(6)
    assert (part.first, part.length, part.size) == (6, 2, 5)
    assert list(part.texts) == ["bb", "ccc"]


def test_what_an_edge_makes_of_a_span_is_made_once() -> None:
    made: list[Span] = []

    def make(span: Span) -> str:
        made.append(span)
        return "made"

    span = Span(0, ["a"])
    assert [span.form(make) for _ in range(3)] == ["made"] * 3
    assert made == [span]


def test_joined_spans_are_one() -> None:
    whole = joined([Span(3, ["a"]), Span(4, ["b", "c"])])
    assert (whole.first, list(whole.texts)) == (3, ["a", "b", "c"])


@given(
    start=st.integers(0, 5),
    adds=st.lists(st.integers(0, 40), max_size=60),
    most=st.integers(1, 400),
)
def test_a_window_is_the_bounded_end_of_its_log_without_a_gap(
    start: int, adds: list[int], most: int
) -> None:
    window = Window(start, most)
    log: list[tuple[int, str]] = []
    for count in adds:
        texts = [str(start + len(log) + i) for i in range(count)]
        log += [(start + len(log) + i, text) for i, text in enumerate(texts)]
        window.add(texts)
        assert window.cursor == start + len(log)
        assert window.first >= start
        for position in {window.first, (window.first + window.cursor) // 2}:
            assert read(window.after(position)) == log[position - start :]
        assert window.after(window.cursor) == []
        # One span is held even if it is larger; small ones merge to 32.
        kept = sum(len(text) for _, text in read(window.after(window.first)))
        assert kept <= max(most, 32 * 4, count * 4)


def test_a_reader_that_lags_by_many_single_chunks_takes_few_spans() -> None:
    window = Window(0, 1_000_000)
    for number in range(1000):
        window.add([str(number)])
    assert len(window.after(0)) <= 1000 // 32 + 32


def test_a_page_that_was_read_is_found_from_any_position_in_it() -> None:
    pages = Pages()
    pages.keep(STREAM, Span(10, ["a", "b", "c"]))
    found = pages.find(STREAM, 11)
    assert found is not None
    assert read([found]) == [(11, "b"), (12, "c")]
    assert pages.find(STREAM, 9) is None
    assert pages.find(STREAM, 13) is None
    assert pages.find(("other", 1), 11) is None


def test_pages_leave_with_the_last_follower_of_their_stream() -> None:
    pages = Pages()
    pages.keep(STREAM, Span(0, ["a"]))
    pages.keep(("default", 2), Span(0, ["b"]))
    pages.drop(STREAM)
    assert pages.find(STREAM, 0) is None
    assert pages.find(("default", 2), 0) is not None


@pytest.mark.parametrize("used", [0, 1])
def test_the_pages_least_recently_used_leave_first(
    used: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conf, "get", lambda: conf.Settings(PAGE_CACHE=20))
    pages = Pages()
    for number in range(2):
        pages.keep(STREAM, Span(number, ["x" * 10]))
    pages.find(STREAM, used)
    pages.keep(STREAM, Span(2, ["x" * 10]))
    assert pages.find(STREAM, used) is not None
    assert pages.find(STREAM, 1 - used) is None
    pages.keep(STREAM, Span(3, ["x" * 21]))
    assert pages.find(STREAM, 3) is None
    assert pages.find(STREAM, 2) is not None


@given(
    now=st.floats(0, 1e6, allow_nan=False),
    pause=st.sampled_from([0.05, 0.1, 0.2, 0.4, 0.8, 1.0]),
)
def test_polls_fall_on_common_moments_within_their_pause(
    now: float, pause: float
) -> None:
    due = next_tick(now, pause)
    assert now < due <= now + pause * 1.000001
    assert round(due / pause) * pause == pytest.approx(due)


@pytest.mark.parametrize("at", range(8, 16))
def test_a_slice_is_split_at_a_seq_and_nothing_is_an_empty_slice(at: int) -> None:
    part = Slice(Span(8, list("abcdef")), 1, 5)
    before, behind = part.split(at)
    halves = [one for one in (before, behind) if one is not None]
    assert "".join(text for half in halves for text in half.texts) == "bcde"
    assert before is None or (before.length and before.first + before.length <= at)
    assert behind is None or (behind.length and behind.first >= at)
