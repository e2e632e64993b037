"""Reading ahead: two pages at most, in order, and never a wrong one."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from django_streams.ahead import Read, ReadAhead
from django_streams.spans import Span, cut

PAGE = 10
END = 45


class Store:
    """Answers when it is told to; knows what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: dict[int, Future[Read]] = {}

    def start(self, position: int) -> Future[Read]:
        self.asked.append(position)
        answer = self.answers[position] = Future[Read]()
        answer.set_running_or_notify_cancel()
        return answer

    async def answer(self, position: int) -> None:
        texts = [str(n) for n in range(position, min(position + PAGE, END))]
        part = Span(position, texts).after(position)
        self.answers[position].set_result(Read([part], END, False))
        await settle()

    async def fail(self, position: int) -> None:
        self.answers[position].set_exception(OSError("away"))
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def ahead(store: Store) -> ReadAhead:
    return ReadAhead(store.start, lambda position: True)


async def test_the_page_after_one_that_came_is_read_and_no_third(
    store: Store, ahead: ReadAhead
) -> None:
    ahead.begin(0)
    ahead.begin(0)
    assert store.asked == [0]
    await store.answer(0)
    assert store.asked == [0, 10]
    await store.answer(10)
    assert store.asked == [0, 10]
    read = await ahead.take(0)
    assert read is not None
    assert read.parts[0].first == 0
    assert store.asked == [0, 10, 20]


async def test_nothing_is_read_beyond_the_end(store: Store, ahead: ReadAhead) -> None:
    ahead.begin(40)
    await store.answer(40)
    assert store.asked == [40]


async def test_what_is_not_wanted_is_not_read(store: Store) -> None:
    ahead = ReadAhead(store.start, lambda position: position < 10)
    ahead.begin(0)
    await store.answer(0)
    assert store.asked == [0]
    ahead.begin(20)
    assert await ahead.take(20) is None


async def test_a_page_is_waited_for(store: Store, ahead: ReadAhead) -> None:
    ahead.begin(0)
    taking = asyncio.create_task(ahead.take(0))
    await settle()
    assert not taking.done()
    await store.answer(0)
    read = await taking
    assert read is not None
    assert not read.settled


async def test_a_failure_is_told_and_the_next_read_begins_anew(
    store: Store, ahead: ReadAhead
) -> None:
    ahead.begin(0)
    await store.fail(0)
    with pytest.raises(OSError, match="away"):
        await ahead.take(0)
    assert await ahead.take(0) is None
    ahead.begin(0)
    assert store.asked == [0, 0]


async def test_after_a_take_that_was_given_up_no_later_page_takes_its_place(
    store: Store, ahead: ReadAhead
) -> None:
    ahead.begin(0)
    taking = asyncio.create_task(ahead.take(0))
    await settle()
    taking.cancel()
    await settle()
    assert taking.cancelled()
    assert await ahead.take(0) is None
    ahead.begin(0)
    await store.answer(0)
    assert await ahead.take(5) is None
    assert await ahead.take(10) is None


async def test_a_page_that_nobody_takes_fails_silently(
    store: Store, ahead: ReadAhead
) -> None:
    ahead.begin(0)
    ahead.stop()
    ahead.begin(10)
    await store.fail(10)
    ahead.stop()


def test_a_page_is_cut_into_spans_without_a_gap() -> None:
    texts = ["x" * 30_000] * 5 + ["y" * 200_000, "z"]
    spans = cut(7, texts)
    assert [span.first for span in spans] == [7, 9, 11, 13]
    assert [text for span in spans for text in span.texts] == texts
    assert cut(3, []) == []
