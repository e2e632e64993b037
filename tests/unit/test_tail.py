"""The reader's decisions, without a store: no gap, no repeat, the end once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.spans import Span
from django_streams.tail import Act, Tail

PAGE = 1_000_000


class Log:
    """A stored stream that a driver fetches from, page by page."""

    def __init__(self, texts: list[str], *, settled: bool = False) -> None:
        self.texts = texts
        self.settled = settled

    def feed(self, tail: Tail, page: int = 1_000) -> None:
        start = tail.fetch_from
        texts = self.texts[start : start + page]
        parts = [Span(start, texts).after(start)] if texts else []
        tail.feed(parts, len(self.texts), self.settled)


def drive(tail: Tail, log: Log, page: int = 1_000) -> Iterator[Act | list[str]]:
    """Obey until there is nothing to do but wait or stop."""
    while True:
        act = tail.decide()
        if act is Act.FETCH:
            log.feed(tail, page)
        elif act is Act.DELIVER:
            batch = tail.take()
            assert all(part.length for part in batch)
            yield [
                f"{seq}:{text}"
                for part in batch
                for seq, text in enumerate(part.texts, part.first)
            ]
        else:
            yield act
            if act is not Act.UP_TO_DATE:
                return
            tail.told()


def numbers(first: int, end: int) -> list[str]:
    return [f"{n}:{n}" for n in range(first, end)]


def log_of(count: int, *, settled: bool = False) -> Log:
    return Log([str(n) for n in range(count)], settled=settled)


def test_a_settled_stream_is_delivered_told_and_finished() -> None:
    steps = list(drive(Tail(0, 2, PAGE), log_of(3, settled=True)))
    assert steps == [numbers(0, 2), numbers(2, 3), Act.UP_TO_DATE, Act.FINISH]


def test_a_live_stream_is_delivered_told_and_waited_for() -> None:
    tail, log = Tail(0, 100, PAGE), log_of(3)
    assert list(drive(tail, log)) == [numbers(0, 3), Act.UP_TO_DATE, Act.WAIT]
    log.texts += ["3", "4"]
    tail.look_again()
    assert list(drive(tail, log)) == [numbers(3, 5), Act.WAIT]
    tail.look_again()
    assert list(drive(tail, log)) == [Act.WAIT]
    log.settled = True
    tail.look_again()
    assert list(drive(tail, log)) == [Act.FINISH]


@pytest.mark.parametrize("settled", [False, True])
def test_an_empty_stream_is_up_to_date_at_once(settled: bool) -> None:
    end = Act.FINISH if settled else Act.WAIT
    steps = list(drive(Tail(0, 9, PAGE), log_of(0, settled=settled)))
    assert steps == [Act.UP_TO_DATE, end]


def test_a_negative_start_is_the_beginning() -> None:
    tail = Tail(-5, 100, PAGE)
    assert next(drive(tail, log_of(2))) == numbers(0, 2)


def test_a_start_beyond_the_end_skips_what_comes_before_it() -> None:
    tail, log = Tail(5, 100, PAGE), log_of(2)
    assert list(drive(tail, log)) == [Act.UP_TO_DATE, Act.WAIT]
    log.texts += ["2", "3", "4"]
    tail.look_again()
    assert list(drive(tail, log)) == [Act.WAIT]
    log.texts += ["5", "6"]
    tail.look_again()
    assert list(drive(tail, log)) == [numbers(5, 7), Act.WAIT]


def test_a_following_batch_is_not_cut_at_the_size_of_a_replay() -> None:
    tail, log = Tail(0, 2, PAGE), log_of(0)
    assert list(drive(tail, log)) == [Act.UP_TO_DATE, Act.WAIT]
    log.texts += [str(n) for n in range(50)]
    tail.look_again()
    assert list(drive(tail, log)) == [numbers(0, 50), Act.WAIT]


def test_a_stream_that_settles_while_it_grows_is_drained_first() -> None:
    """The page that shows it settled may be short of the end."""
    tail, log = Tail(0, 100, PAGE), log_of(10, settled=True)
    steps = list(drive(tail, log, page=3))
    delivered = [text for step in steps if isinstance(step, list) for text in step]
    assert delivered == numbers(0, 10)
    assert steps[-2:] == [Act.UP_TO_DATE, Act.FINISH]


def test_what_waits_is_bounded_by_its_size() -> None:
    """A batch of a hundred large chunks is not gathered in memory first."""
    tail = Tail(0, 100, 50)
    log = Log(["x" * 30] * 20, settled=True)
    steps = [s for s in drive(tail, log, page=1) if isinstance(s, list)]
    assert all(len(batch) <= 2 for batch in steps)
    assert sum(len(batch) for batch in steps) == 20


def test_without_a_batch_size_a_batch_is_a_page() -> None:
    tail, log = Tail(0, None, 1), log_of(7, settled=True)
    steps = [s for s in drive(tail, log, page=3) if isinstance(s, list)]
    assert steps == [numbers(0, 3), numbers(3, 6), numbers(6, 7)]


@given(
    start=st.integers(-2, 30),
    batch_size=st.integers(1, 12),
    page=st.integers(1, 9),
    page_bytes=st.integers(1, 200),
    growth=st.lists(st.integers(0, 15), max_size=8),
)
def test_every_history_is_read_once_in_order(
    start: int, batch_size: int, page: int, page_bytes: int, growth: list[int]
) -> None:
    tail, log = Tail(start, batch_size, page_bytes), log_of(0)
    first = max(start, 0)
    seen: list[str] = []
    told = 0
    for index, count in enumerate([*growth, 0]):
        stored = len(log.texts)
        log.texts += [str(n) for n in range(stored, stored + count)]
        log.settled = index == len(growth)
        tail.look_again()
        for step in drive(tail, log, page):
            if isinstance(step, list):
                assert told or len(step) <= batch_size
                seen += step
            elif step is Act.UP_TO_DATE:
                told += 1
                assert seen == numbers(first, len(log.texts))
            else:
                assert step is (Act.FINISH if log.settled else Act.WAIT)
    assert seen == numbers(first, len(log.texts))
    assert told == 1
    assert tail.position == max(first, len(log.texts))
