"""What overlapping messages look like to those who sent and those who watch."""

from __future__ import annotations

import asyncio
import time

import pytest

from django_streams.chat import Debounce
from django_streams.turns.policy import Concurrency

from .chatting import (
    MESSAGES,
    RESPONSE,
    Frame,
    Script,
    Tab,
    message_text,
    responses,
    stored,
    text_of,
    turn_of,
    user_message,
)

pytestmark = pytest.mark.usefixtures("chat")

SKIPPED = {"body": "", "done": True, "outcome": "skipped"}


async def begun(tab: Tab, script: Script) -> None:
    """A first reply is being written."""
    await tab.ready()
    await tab.ask("one", "q1")
    script.say("first")
    await tab.until(RESPONSE, id="q1", seq=3)


def skipped(frames: list[Frame], request_id: str) -> Frame:
    (frame,) = responses(frames, request_id)
    assert frame | SKIPPED == frame and "error" not in frame
    return frame


@pytest.mark.parametrize("mode", ["latest", "merge", Debounce(0.05)])
async def test_who_was_overtaken_is_told_and_the_newest_is_answered(
    mode: Concurrency,
) -> None:
    script = Script()
    agent = script.agent(message_concurrency=mode)
    async with Tab(agent) as tab:
        await begun(tab, script)
        await tab.ask("two", "q2")
        await tab.ask("three", "q3")
        assert skipped(await tab.done("q2"), "q2")["messageIds"] == ["u-q2"]
        script.end()
        assert "outcome" not in (await tab.done("q1"))[-1]
        script.say("second")
        script.end()
        assert text_of(await tab.done("q3"), "q3") == "second"
    assert len(script.turns) == 2
    texts = [message_text(m) for m in await stored(agent)]
    if mode == "merge":
        assert script.turns[1].text == "two\n\nthree"
        assert texts == ["one", "two\n\nthree", "first", "second"]
    else:
        assert script.turns[1].text == "three"
        assert texts == ["one", "two", "three", "first", "second"]


async def test_who_overtakes_from_another_tab_is_told_to_the_overtaken() -> None:
    script = Script()
    agent = script.agent(message_concurrency="latest")
    async with Tab(agent) as tab, Tab(agent) as other:
        await begun(tab, script)
        await other.ready()
        await tab.ask("two", "q2")
        while "u-q2" not in str(await other.until(MESSAGES)):
            pass
        await other.ask("three", "q3")
        skipped(await tab.done("q2"), "q2")
        script.end()
        script.say("second")
        script.end()
        assert text_of(await other.done("q3"), "q3") == "second"
        # Skipped is between the server and who asked.
        assert responses(other.kept, "q2") == []


async def test_a_merge_is_shown_to_all_who_have_the_single_messages() -> None:
    script = Script()
    agent = script.agent(message_concurrency="merge")
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await begun(tab, script)
        await tab.ask("two", "q2")
        await tab.ask("three", "q3")
        # Both are accepted while the first reply is being written.
        kept = await tab.done("q2")
        script.end()
        script.say("second")
        script.end()
        mine, theirs = [*kept, *await tab.done("q3")], await other.done("q3")
    for frames in (mine, theirs):
        reply = next(at for at, f in enumerate(frames) if responses([f], "q3"))
        shown = [f for f in frames[:reply] if f["type"] == MESSAGES]
        assert "two\n\nthree" in [message_text(m) for m in shown[-1]["messages"]]


async def test_a_dropped_message_is_answered_with_what_there_is() -> None:
    script = Script()
    agent = script.agent(message_concurrency="drop")
    async with Tab(agent) as tab, Tab(agent) as other:
        await begun(tab, script)
        await other.ready()
        await tab.ask("two", "q2")
        frames = await tab.done("q2")
        assert [f["type"] for f in frames[-2:]] == [MESSAGES, RESPONSE]
        assert [message_text(m) for m in frames[-2]["messages"]] == ["one", "first"]
        assert skipped(frames, "q2")["messageIds"] == ["u-q2"]
        script.end()
        await tab.done("q1")
        reply = frames[-2]["messages"][-1]["id"]
        assert [m["id"] for m in await stored(agent)] == ["u-q1", reply]
        # Free again.
        script.say("second")
        script.end()
        await tab.ask("three", "q3")
        assert text_of(await tab.done("q3"), "q3") == "second"
        await other.done("q3")
    assert "u-q2" not in str(other.kept)


async def test_a_debounced_reply_begins_after_its_pause_and_no_earlier() -> None:
    script = Script()
    agent = script.agent(message_concurrency=Debounce(0.4))
    async with Tab(agent) as tab:
        await begun(tab, script)
        asked = time.monotonic()
        await tab.ask("two", "q2")
        while await turn_of(agent, "q2") is None:
            await asyncio.sleep(0.01)
        script.end()
        script.say("second")
        script.end()
        await tab.done("q1")
        await tab.until(RESPONSE, id="q2", seq=0)
        assert time.monotonic() - asked >= 0.4
        await tab.done("q2")


async def test_regenerating_in_mid_reply_waits_in_line() -> None:
    script = Script()
    agent = script.agent(message_concurrency="drop")
    async with Tab(agent) as tab:
        await begun(tab, script)
        question = user_message("one", "u-q1")
        await tab.submit([question], "q2", trigger="regenerate-message")
        script.end()
        script.say("better")
        script.end()
        assert text_of(await tab.done("q2"), "q2") == "better"


async def test_no_more_messages_are_kept_than_the_agent_says() -> None:
    script = Script()
    agent = script.agent(max_persisted_messages=2)
    async with Tab(agent) as tab:
        for at in (1, 2):
            script.say(f"answer {at}")
            script.end()
            await tab.ask("x", f"q{at}", *await stored(agent))
            await tab.done(f"q{at}")
    texts = [message_text(m) for m in await stored(agent)]
    assert texts == ["x", "answer 2"]
