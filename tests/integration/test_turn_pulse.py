"""What a run asks and writes while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from django_streams.turns import clock, conversations, door, ends, queue
from django_streams.turns.pulse import Pulse
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnRecord

from .chatting import user_message

REF = ConversationRef("agent", "room", "u:1")
LEASE = 60.0


@pytest.fixture(autouse=True)
def lease(chat_alias: str, settings: Any) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "TURN_LEASE": LEASE}


def submit(request_id: str) -> None:
    message = user_message("x", f"u-{request_id}")
    queue.submit(
        REF,
        Submission(
            request_id=request_id, messages=[message], origin_ids=[message["id"]]
        ),
    )


def claim(seconds: float) -> TurnRecord:
    submit("q1")
    pk = conversations.find(REF)
    assert pk is not None
    turn = queue.claim(pk, message_id="a1", lease=seconds)
    assert turn is not None
    return turn


def lease_end() -> datetime:
    found = queue.turns().get(request_id="q1").lease_expires_at
    assert found is not None
    return found


@asynccontextmanager
async def beating(turn: TurnRecord) -> AsyncIterator[Pulse]:
    pulse = Pulse(REF, turn)
    running = asyncio.create_task(pulse.run(lambda: None))
    try:
        yield pulse
    finally:
        running.cancel()
        await asyncio.wait({running})


async def until(fits: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not await door.run(fits):
            await asyncio.sleep(0.01)


async def test_what_happens_in_the_conversation_makes_no_runner_write() -> None:
    turn = await door.run(claim, LEASE)
    before = await door.run(lease_end)
    async with beating(turn) as pulse:
        await door.run(submit, "q2")
        await door.run(ends.cancel, REF, "q1")
        async with asyncio.timeout(10):
            await pulse.stopping.wait()
        assert not pulse.lost
    assert await door.run(lease_end) == before


async def test_a_lease_that_was_given_long_ago_is_renewed_at_once() -> None:
    # The answer to the claim may be late by as long as a database is away.
    turn = await door.run(claim, 2.0)
    before = await door.run(lease_end)
    async with beating(turn):
        await until(lambda: lease_end() > before)


async def test_a_runner_whose_turn_is_another_s_is_told_by_what_happens() -> None:
    turn = await door.run(claim, LEASE)

    def take_away() -> None:
        queue.turns().filter(pk=turn.pk).update(
            epoch=turn.epoch + 1, lease_expires_at=clock.after(door.alias(), LEASE)
        )
        submit("q2")

    async with beating(turn) as pulse:
        await door.run(take_away)
        async with asyncio.timeout(10):
            await pulse.stopping.wait()
        assert pulse.lost
