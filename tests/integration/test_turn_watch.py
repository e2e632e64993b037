"""Following conversations: by wakes, and by the poll alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.db import connections

from django_streams.models import ConversationEvent
from django_streams.turns import conversations, door, queue
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef
from django_streams.turns.watch import get_watch

from .chatting import TIMEOUT, quiet, user_message

pytestmark = pytest.mark.usefixtures("chat")

REF = ConversationRef("agent", "room", "u:1")


def submit(request_id: str, ref: ConversationRef = REF) -> None:
    message = user_message("x", f"u-{request_id}")
    queue.submit(
        ref,
        Submission(request_id=request_id, messages=[message], origin_ids=["u1"]),
    )


class Ear:
    def __init__(self, ref: ConversationRef = REF) -> None:
        self.news = asyncio.Event()
        self.lapsed = asyncio.Event()
        self.ref = ref
        self.position = 0

    async def __aenter__(self) -> Ear:
        watch = get_watch()
        self.following = watch.follow(self.ref, self.news.set, self.lapsed.set)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.following.close()

    async def next(self) -> list[int]:
        """The numbers of the next events that it is told of."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                self.news.clear()
                events = await self.following.after(self.position)
                if events:
                    self.position = events[-1].seq
                    return [event.seq for event in events]
                await self.news.wait()


async def test_a_follower_is_told_from_before_the_first_submit() -> None:
    async with Ear() as ear:
        await door.run(submit, "q1")
        assert await ear.next() == [1]
        await door.run(submit, "q2")
        assert await ear.next() == [2]


async def test_the_poll_finds_what_no_wake_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "wake_on_commit", lambda key: None)
    async with Ear() as ear:
        for number in range(3):
            await door.run(submit, f"q{number}")
            assert await ear.next() == [number + 1]


async def test_who_comes_late_reads_from_its_own_position() -> None:
    for number in range(5):
        await door.run(submit, f"q{number}")
    async with Ear() as first:
        assert await first.next() == [1, 2, 3, 4, 5]
        async with Ear() as second:
            second.position = 3
            assert await second.next() == [4, 5]
            await door.run(submit, "q5")
            assert await first.next() == await second.next() == [6]


async def test_events_that_were_trimmed_show_as_a_gap() -> None:
    for number in range(5):
        await door.run(submit, f"q{number}")
    await door.run(trim, 4)
    async with Ear() as ear:
        assert await ear.next() == [4, 5]


def trim(first: int) -> None:
    ConversationEvent.objects.using(door.alias()).filter(seq__lt=first).delete()


async def test_a_lapsed_turn_is_noticed_while_it_is_followed() -> None:
    await door.run(submit, "q1")

    def claim() -> None:
        pk = conversations.find(REF)
        assert pk is not None
        queue.claim(pk, message_id="a1", lease=0.3)

    async with Ear() as ear:
        await door.run(claim)
        async with asyncio.timeout(TIMEOUT):
            await ear.lapsed.wait()


@pytest.fixture
async def count(chat_alias: str) -> AsyncIterator[Callable[[], int]]:
    """How many queries the pool's threads have run."""
    seen: list[str] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(sql)
        return execute(sql, params, many, context)

    patched: list[Any] = []

    def watch() -> None:
        connection = connections[chat_alias]
        connection.execute_wrappers.append(note)
        patched.append(connection)

    for _ in range(16):
        await door.run(watch)
    for connection in patched:
        wrappers = connection.execute_wrappers
        wrappers[:] = [note]
    yield lambda: len(seen)
    for connection in patched:
        connection.execute_wrappers.clear()


async def test_many_idle_followers_share_one_question(
    count: Callable[[], int], settings: Any, chat_alias: str
) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "POLL_MAX": 0.25}
    refs = [ConversationRef("agent", f"room{at}", "u:1") for at in range(100)]
    ears = [Ear(ref) for ref in refs for _ in range(3)]
    for ear in ears:
        await ear.__aenter__()
    before = 0
    while count() - before > 3 or not before:
        # The first looks, until the poll is at its slowest.
        before = count()
        await asyncio.sleep(0.5)
    before = count()
    await asyncio.sleep(1)
    asked = count() - before
    for ear in ears:
        await ear.__aexit__()
    # One query a look, four looks a second; alone they would ask 400 times.
    assert 1 <= asked <= 10


async def test_a_watch_is_given_up_when_nobody_follows() -> None:
    async with Ear(), Ear():
        first = get_watch()
        await door.run(submit, "q1")
    await quiet()
    assert get_watch() is not first
