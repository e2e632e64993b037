"""The database or Redis goes away in the middle of a turn, and comes back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.codec import decode
from django_streams.turns import door, queue, status, transcript
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnStatus
from django_streams.turns.runner import get_runner
from tests import process
from tests.integration.chatting import (
    RESPONSE,
    RESUMING,
    Tab,
    message_text,
    text_of,
    user_message,
)
from tests.own_postgresql import OwnPostgreSQL
from tests.own_redis import OwnRedis
from tests.process import Child

from .own_chats import own_chats

AWAY = 1.5
"""Seconds without PostgreSQL."""

REDIS_AWAY = 10.0

LATEST = 1.5
"""Seconds after which a word must be shown at the latest: POLL_MAX, and what a
busy machine adds."""

SAID: list[float] = []


class Talking(AIChatConsumer):
    """Says as many words as it was asked to, one each so many seconds, but for
    those that are in ``turn.partial``."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Any) -> AsyncIterator[str]:
        count, pause = turn.text.split()
        said = "" if turn.partial is None else message_text(turn.partial)
        for at in range(said.count(" "), int(count)):
            SAID.append(time.monotonic())
            yield f"w{at} "
            await asyncio.sleep(float(pause))


def words(count: int) -> str:
    return "".join(f"w{at} " for at in range(count))


async def speak(room: str, text: str) -> None:
    """Run a turn; says when each word was said, and how the turn ended."""
    agent_routes(Talking)
    ref = ConversationRef(Talking.agent_name, room, "a:v1")
    process.say("here")
    await asyncio.to_thread(process.hear)
    submission = Submission(
        request_id=room,
        messages=[user_message(text, "u1")],
        origin_ids=["u1"],
    )
    await door.run(queue.submit, ref, submission)
    get_runner().kick(ref)
    process.say("submitted")
    while True:
        turn = await door.run(status.find_turn, ref, room)
        if turn is not None and turn.status.over:
            break
        await asyncio.sleep(0.1)
    texts = await door.run(transcript.texts, ref)
    answers = [message_text(decode(text)) for text in texts[1:]]
    process.say([SAID, turn.status, turn.attempt, answers])


async def watch(room: str) -> None:
    """Follow the room; says what was shown, and when each word was."""
    async with Tab(Talking, room) as tab:
        await tab.ready()
        process.say("here")
        shown: list[float] = []
        while True:
            frame = await tab.next(18)
            if frame["type"] == RESUMING:
                # It looked between the start and the first news of it.
                await tab.ack(frame["id"])
            if frame["type"] == RESPONSE and "text-delta" in frame["body"]:
                shown.append(time.monotonic())
            if frame["type"] == RESPONSE and frame["done"]:
                break
        process.say([shown, text_of(tab.kept, room), frame.get("error")])


@pytest.fixture(scope="module")
def server() -> Iterator[OwnPostgreSQL]:
    with own_chats() as server:
        yield server


@pytest.mark.parametrize("lease", [1.0, 20.0], ids=["shorter", "longer"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_turn_goes_on_when_postgresql_is_back(
    server: OwnPostgreSQL, how: signal.Signals, lease: float
) -> None:
    """With a lease that is over by then, and with one that is not."""
    env = server.env | {"DS_CHAT_LEASE": str(lease)}
    room = f"{how.name}-{lease}"
    with (
        Child(speak, env=env, room=room, text="40 0.04") as runner,
        Child(watch, env=env, room=room) as tab,
    ):
        assert (runner.hear(), tab.hear()) == ("here", "here")
        runner.say("go")
        assert runner.hear() == "submitted"
        time.sleep(0.7)
        server.stop(how)
        time.sleep(AWAY)
        server.start()
        _, ended, attempt, answers = runner.hear()
        _, shown, error = tab.hear()
    assert (ended, answers) == (TurnStatus.COMPLETED, [words(40)])
    assert (shown, error) == (words(40), None)
    assert attempt <= 2 if lease < AWAY else attempt == 1


@pytest.mark.needs("postgresql", "redis-server")
def test_a_turn_is_shown_in_time_though_redis_is_gone_for_ten_seconds(
    postgresql_db: str,
) -> None:
    with OwnRedis() as redis:
        env = {
            "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
            "DS_CHAT_DATABASE": "postgresql",
            "DS_CHAT_LAYER": "redis",
            "DS_TEST_REDIS_URL": redis.url,
        }
        with (
            Child(speak, env=env, room="r", text="105 0.1") as runner,
            Child(watch, env=env, room="r") as tab,
        ):
            assert (runner.hear(), tab.hear()) == ("here", "here")
            runner.say("go")
            assert runner.hear() == "submitted"
            time.sleep(0.5)
            redis.stop()
            time.sleep(REDIS_AWAY)
            redis.start()
            said, ended, attempt, answers = runner.hear()
            arrived, shown, error = tab.hear()
    assert (ended, attempt, answers) == (TurnStatus.COMPLETED, 1, [words(105)])
    assert (shown, error) == (words(105), None)
    assert len(said) == len(arrived) == 105
    assert max(b - a for a, b in zip(said, arrived, strict=True)) <= LATEST
