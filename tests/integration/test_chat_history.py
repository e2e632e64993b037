"""What a conversation keeps: the order, regenerating, editing, short copies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .chatting import (
    MESSAGES,
    RESPONSE,
    Script,
    Tab,
    make_agent,
    message_text,
    responses,
    stored,
    text_of,
    turn_of,
    user_message,
    visitor,
)

pytestmark = pytest.mark.usefixtures("chat")


async def test_two_quick_messages_are_answered_one_after_the_other() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("one", "q1")
        await tab.ask("two", "q2", user_message("one", "u-q1"))
        script.say("first")
        script.end()
        script.say("second")
        script.end()
        frames = await tab.done("q2")
    assert text_of(frames, "q1") == "first"
    assert text_of(frames, "q2") == "second"
    order = [f["id"] for f in frames if f["type"] == RESPONSE]
    assert order == sorted(order), "chunks of two turns were mixed"
    one, two = script.turns
    assert [m["id"] for m in one.messages] == ["u-q1"]
    # The second question comes last for the model, after the first answer.
    assert [m["role"] for m in two.messages] == ["user", "assistant", "user"]
    assert two.text == "two"
    assert len(await stored(agent)) == 4


async def test_regenerating_replaces_the_answer() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say("old")
        script.end()
        await tab.ask("x")
        await tab.done()
        first = (await stored(agent))[1]["id"]
        script.say("new")
        script.end()
        question = user_message("x", "u-q1")
        await tab.submit([question], "q2", trigger="regenerate-message")
        await tab.done("q2")
    _, answer = await stored(agent)
    assert message_text(answer) == "new"
    assert answer["id"] != first
    assert script.turns[1].trigger == "regenerate-message"


@pytest.mark.parametrize("tabs", [1, 2])
async def test_regenerating_twice_at_once_leaves_one_answer_to_all(tabs: int) -> None:
    script = Script()
    agent = script.agent()
    question = user_message("x", "u-q1")
    async with Tab(agent) as one, Tab(agent) as other:
        await other.ready()
        script.say("old")
        script.end()
        await one.ask("x")
        await one.done()
        for at, tab in enumerate((one, other if tabs == 2 else one, one)):
            again = f"r{at}"
            await tab.submit([question], again, trigger="regenerate-message")
            while await turn_of(agent, again) is None:
                await asyncio.sleep(0.01)
        for text in ("first", "second", "third"):
            script.say(text)
            script.end()
        for tab in (one, other):
            await tab.done("r2")
            # The one before goes before the next one begins.
            first = tab.kept.index(responses(tab.kept, "r2")[0])
            lists = [f for f in tab.kept[:first] if f["type"] == MESSAGES]
            assert lists[-1]["messages"] == [question]
        assert [[m["id"] for m in turn.messages] for turn in script.turns] == (
            [["u-q1"]] * 4
        )
    _, answer = await stored(agent)
    assert message_text(answer) == "third"


async def test_regenerating_in_mid_reply_leaves_the_new_answer() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one, Tab(agent) as other:
        await other.ready()
        await one.ask("x")
        script.say("old")
        await other.until(RESPONSE, seq=3)
        question = user_message("x", "u-q1")
        await other.submit([question], "r1", trigger="regenerate-message")
        await one.until(MESSAGES)
        script.end()
        script.say("new")
        script.end()
        for tab in (one, other):
            await tab.done("q1")
            frames = await tab.done("r1")
            assert text_of(frames, "r1") == "new"
            # When it is told the new answer may be there as well.
            told = [f["messages"] for f in frames if f["type"] == MESSAGES]
            assert told
            assert all(message_text(m) in ("x", "new") for m in told[-1])
    _, answer = await stored(agent)
    assert message_text(answer) == "new"


async def test_an_edited_question_replaces_what_followed() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        for at in (1, 2):
            script.say(f"answer {at}")
            script.end()
            await tab.ask(f"question {at}", f"q{at}", *await stored(agent))
            await tab.done(f"q{at}")
        script.say("better")
        script.end()
        await tab.submit([user_message("edited", "u-q1")], "q3")
        await tab.done("q3")
    assert [message_text(m) for m in await stored(agent)] == ["edited", "better"]


@pytest.mark.parametrize(("second", "warned"), [("same", 1), ("other", 0)])
async def test_a_reply_under_the_id_of_an_earlier_one_replaces_it_and_is_logged(
    second: str, warned: int, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        for at, message_id in enumerate(("same", second)):
            script.say({"type": "start", "messageId": message_id}, f"answer {at}")
            script.end()
            await tab.ask("x", f"q{at}", *await stored(agent))
            await tab.done(f"q{at}")
    answers = [m["id"] for m in await stored(agent) if m["role"] == "assistant"]
    assert answers == (["same"] if warned else ["same", "other"])
    logged = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(logged) == warned
    assert all(agent.agent_name in text and "'same'" in text for text in logged)


async def test_a_client_with_part_of_the_history_deletes_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        for at in (1, 2):
            script.say(f"answer {at}")
            script.end()
            await tab.ask(f"question {at}", f"q{at}")
            await tab.done(f"q{at}")
    assert len(await stored(agent)) == 4


async def test_a_shorter_copy_of_a_reply_does_not_overwrite_it() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say("the whole answer")
        script.end()
        await tab.ask("x")
        await tab.done()
        asked, answer = await stored(agent)
        cut = answer | {"parts": [{"type": "text", "text": "the wh"}]}
        script.say("y")
        script.end()
        await tab.ask("more", "q2", asked, cut)
        await tab.done("q2")
    assert message_text((await stored(agent))[1]) == "the whole answer"


async def test_rooms_and_visitors_are_apart() -> None:
    async def on_chat_message(self: Any, turn: Any) -> str:
        return f"{turn.conversation.name} of {turn.conversation.owner}"

    agent = make_agent(on_chat_message)
    async with (
        Tab(agent, "a") as one,
        Tab(agent, "b") as two,
        Tab(agent, "a", session=visitor("v2")) as three,
    ):
        for tab in (one, two, three):
            await tab.ask("x")
        texts = [text_of(await tab.done()) for tab in (one, two, three)]
    assert texts == ["a of a:v1", "b of a:v1", "a of a:v2"]
    assert len(await stored(agent, "a")) == 2
