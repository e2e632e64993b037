"""The connection is lost at one statement after the other of a turn."""

from __future__ import annotations

import asyncio
from collections import Counter
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
from tests.integration.chatting import message_text, user_message
from tests.process import Child

from .proxy import Cut, PostgresProxy

pytestmark = pytest.mark.needs("postgresql")

PARTS = 6
"""Of the statements, each part with a process of its own."""

TIMES = 2
"""Of the statements of one kind so many are lost, each in a turn of its own."""

KIND = 64
"""Letters of a statement that tell its kind."""

WORDS = "one two three "
HEARD: list[str] = []


class Brief(AIChatConsumer):
    allow_anonymous = True

    async def on_chat_message(self, turn: Any) -> AsyncIterator[str]:
        for word in WORDS.split():
            yield f"{word} "

    def on_chat_response(self, result: Any) -> None:
        HEARD.append(result.status)


async def answer() -> None:
    """Run a turn in each room that is named; says what became of it."""
    agent_routes(Brief)
    while room := await asyncio.to_thread(process.hear):
        HEARD.clear()
        ref = ConversationRef(Brief.agent_name, room, "a:v1")
        submission = Submission(
            request_id="q1", messages=[user_message("x", "u1")], origin_ids=["u1"]
        )
        await door.run(queue.submit, ref, submission)
        process.say("submitted")
        await asyncio.to_thread(process.hear)
        get_runner().kick(ref)
        while True:
            turn = await door.run(status.find_turn, ref, "q1")
            if turn is not None and turn.status.over and HEARD:
                break
            await asyncio.sleep(0.02)
        said = [message_text(decode(t)) for t in await door.run(transcript.texts, ref)]
        process.say([turn.status, turn.attempt, said[1:], HEARD])


@pytest.fixture
def proxy(postgresql_db: str) -> Iterator[PostgresProxy]:
    with PostgresProxy() as proxy:
        yield proxy


def run_turn(child: Child, proxy: PostgresProxy, room: str, rule: Any) -> Any:
    child.say(room)
    assert child.hear() == "submitted"
    proxy.rule = rule
    child.say("go")
    try:
        return child.hear()
    finally:
        proxy.rule = lambda sql: None


@pytest.mark.parametrize("part", range(PARTS))
def test_a_turn_ends_as_if_nothing_had_been(proxy: PostgresProxy, part: int) -> None:
    """Whichever of its statements is lost, its end among them."""
    env = proxy.env | {
        "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
        "DS_CHAT_DATABASE": "postgresql",
    }
    kinds: Counter[str] = Counter()
    expected = [TurnStatus.COMPLETED, 1, [WORDS], ["completed"]]
    with Child(answer, env=env) as child:
        assert (
            run_turn(child, proxy, "whole", lambda sql: kinds.update([sql[:KIND]]))
            == expected
        )
        cuts = [
            (kind, number)
            for kind, count in sorted(kinds.items())
            for number in range(1, min(count, TIMES) + 1)
        ]
        assert len(cuts) > 2 * PARTS
        for kind, number in cuts[part::PARTS]:
            left = [number]

            def rule(sql: str, kind: str = kind, left: list[int] = left) -> Cut | None:
                left[0] -= sql.startswith(kind)
                return Cut.BEFORE if sql.startswith(kind) and not left[0] else None

            became = run_turn(child, proxy, f"{kind} {number}", rule)
            assert became == expected, (kind, number)
        child.say("")
        assert child.wait() == 0
