"""A turn whose runner died is run again, and what it said is neither lost nor
said twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.turns import door, ends, queue
from django_streams.turns.records import TurnStatus
from django_streams.turns.replay import turn_streams

from .chatting import (
    RESPONSE,
    RESUMING,
    Script,
    Tab,
    chunks,
    eventually,
    make_agent,
    message_text,
    quiet,
    ref_of,
    stored,
    text_of,
    turn_of,
)
from .leaving import abandoned, accept

pytestmark = [
    pytest.mark.usefixtures("chat"),
    pytest.mark.parametrize(
        "chat_alias", ["default", "postgresql", "mariadb"], indirect=True
    ),
]


async def test_the_handler_goes_on_with_what_was_stored() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "par", "tial")
    async with Tab(agent) as tab:
        await accept(tab)
        script.say(" and more")
        script.end()
        frames = await tab.done()
    assert text_of(tab.kept) == "partial and more"
    assert "error" not in frames[-1]
    (turn,) = script.turns
    assert (turn.attempt, turn.messages[-1]) == (2, turn.partial)
    assert message_text(turn.partial) == "partial"
    assert turn.partial["id"] == "a1"
    (_, answer) = await stored(agent)
    assert (answer["id"], message_text(answer)) == ("a1", "partial and more")
    ended = await turn_of(agent)
    assert (ended.status, ended.attempt) == (TurnStatus.COMPLETED, 2)


async def test_the_log_stays_one_grammatical_reply() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await accept(tab)
        script.say("b")
        script.end()
        await tab.done()
    assert [c["type"] for c in chunks(tab.kept)] == [
        "start",
        "text-start",
        "text-delta",
        "text-delta",
        "text-end",
        "finish",
    ]
    numbers = [f["seq"] for f in tab.kept if "seq" in f]
    assert numbers == list(range(len(numbers)))


async def test_who_was_watching_sees_the_reply_go_on() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "a", lease_seconds=0.7)
    async with Tab(agent) as tab:
        await accept(tab)
        script.say("b")
        script.end()
        frames = await tab.done()
    assert text_of(frames) == "b"
    assert text_of(tab.kept) == "ab"


async def test_a_turn_that_had_not_begun_simply_runs() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent)
    async with Tab(agent) as tab:
        await accept(tab)
        script.say("hello")
        script.end()
        await tab.done()
    assert text_of(tab.kept) == "hello"
    (turn,) = script.turns
    assert (turn.attempt, turn.partial) == (2, None)
    assert turn.messages[-1]["role"] == "user"


async def test_a_reply_that_was_said_to_its_end_is_only_ended() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "all", finished=True)
    async with Tab(agent) as tab:
        await tab.ready()
        while (await turn_of(agent)).status is TurnStatus.RUNNING:
            await asyncio.sleep(0.01)
    assert not script.turns
    (_, answer) = await stored(agent)
    assert message_text(answer) == "all"


async def test_on_recover_hears_of_it_before_the_handler_and_may_fail() -> None:
    heard: list[Any] = []

    def on_recover(self: Any, turn: Any) -> None:
        heard.append((turn.attempt, message_text(turn.partial), list(script.turns)))
        raise RuntimeError("not my day")

    script = Script()
    agent = script.agent(on_recover=on_recover)
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await accept(tab)
        script.say("b")
        script.end()
        await tab.done()
    assert text_of(tab.kept) == "ab"
    assert heard == [(2, "a", [])]


async def test_a_fresh_turn_is_not_recovered() -> None:
    heard: list[Any] = []

    def on_recover(self: Any, turn: Any) -> None:
        heard.append(turn)

    script = Script()
    agent = script.agent(on_recover=on_recover)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        script.end()
        await tab.done()
    assert not heard


async def test_when_the_attempts_are_spent_the_turn_fails() -> None:
    script = Script()
    agent = script.agent(max_recovery_attempts=1)
    await abandoned(agent, "par", "tial", attempt=2)
    async with Tab(agent) as tab:
        assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        frames = await tab.done()
    assert (frames[-1]["error"], text_of(frames)) == (True, "partial")
    assert not script.turns
    assert (await turn_of(agent)).attempt == 2


async def test_a_turn_that_was_asked_to_stop_is_not_run_again() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "a")
    await door.run(ends.cancel, ref_of(agent, "room"), "q1")
    async with Tab(agent) as tab:
        await tab.ready()
    assert not script.turns
    assert (await turn_of(agent)).status is TurnStatus.ABORTED


async def test_a_restart_drops_what_was_said_and_begins_a_stream_anew() -> None:
    script = Script()
    agent = script.agent(on_interrupted="restart")
    left = await abandoned(agent, "half")
    async with Tab(agent) as tab:
        await tab.ready()
        await eventually(lambda: script.turns)
        assert (await tab.probe("p2"))["type"] == RESUMING
        await tab.ack()
        await tab.until(RESPONSE, replayComplete=True)
        script.say("whole")
        script.end()
        frames = await tab.done()
    assert text_of(frames) == "whole"
    (turn,) = script.turns
    assert (turn.attempt, turn.partial) == (2, None)
    assert turn.messages[-1]["role"] == "user"
    (_, answer) = await stored(agent)
    assert message_text(answer) == "whole"
    new, old = await turn_streams(door.alias()).alist(tag="q1")
    assert old.stream_id == left.stream
    assert (old.state, old.error) == ("errored", "interrupted")
    assert (await turn_of(agent)).stream == new.stream_id
    assert new.state == "completed"


async def test_a_run_that_is_cancelled_gives_its_turn_up_at_once() -> None:
    """With a lease of a minute: nothing waits for it to lapse."""
    attempts: list[int] = []
    told = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        attempts.append(turn.attempt)
        if turn.attempt == 1:
            yield "a"
            told.set()
            await asyncio.Event().wait()
        yield "b"

    agent = make_agent(on_chat_message)
    from django_streams.turns.runner import get_runner

    async with Tab(agent) as tab:
        await tab.ask("x")
        await told.wait()
        ref = ref_of(agent, "room")
        drain = get_runner()._drains[ref.key]
        drain.cancel()
        await asyncio.wait({drain})
        get_runner().kick(ref)
        assert text_of(await tab.done()) == "ab"
    await quiet()
    assert attempts == [1, 2]


async def test_a_restart_takes_the_old_words_back_from_who_watches() -> None:
    """As the official hook wants it: see docs/decisions/interrupted-turns.md."""
    script = Script()
    agent = script.agent(on_interrupted="restart")
    await abandoned(agent, "half", lease_seconds=0.7)
    async with Tab(agent) as tab:
        await accept(tab)
        over, offer = await tab.next(), await tab.next()
        before = len(tab.kept)
        assert (over["done"], over["outcome"]) == (True, "recovering")
        assert (offer["type"], offer["id"]) == (RESUMING, "q1")
        script.say("whole")
        assert await tab.silent()
        await tab.ack()
        first = await tab.until(RESPONSE, seq=0)
        assert first["replay"] is True
        assert json.loads(first["body"]) == {"type": "start", "messageId": "a1"}
        script.end()
        await tab.done()
    assert text_of(tab.kept[before:]) == "whole"


async def test_a_restart_keeps_the_id_that_the_handler_gave_its_reply() -> None:
    script = Script()
    agent = script.agent(on_interrupted="restart")
    await abandoned(agent, "half", message_id="mine")
    async with Tab(agent) as tab:
        script.say("whole")
        script.end()
        await tab.ready()
        while (await turn_of(agent)).status is TurnStatus.RUNNING:
            await asyncio.sleep(0.01)
    (_, answer) = await stored(agent)
    assert (answer["id"], message_text(answer)) == ("mine", "whole")


async def test_a_continuation_that_restarts_goes_on_counting_its_chunks() -> None:
    """The hook drops what is replayed up to the last number that it was shown."""
    script = Script()
    agent = script.agent(on_interrupted="restart")
    await abandoned(agent, "half")
    await door.run(queue.turns().update, continuation=True)
    async with Tab(agent) as tab:
        await tab.ready()
        await eventually(lambda: script.turns)
        assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        first = await tab.until(RESPONSE, replay=True)
        assert json.loads(first["body"])["type"] == "start"
        script.say("whole")
        script.end()
        await tab.done()
    numbers = [f["seq"] for f in tab.kept if "seq" in f]
    # start, text-start and a word were in the log that was dropped.
    assert numbers == list(range(3, 3 + len(numbers)))
    assert numbers
