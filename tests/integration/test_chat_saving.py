"""Turns that code asks for: in line, with messages that come in their time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from django_streams.turns import door, orders, queue
from django_streams.turns.orders import Order
from django_streams.turns.policy import SAVE

from .chatting import (
    MESSAGES,
    RESPONSE,
    Script,
    Tab,
    message_text,
    ref_of,
    responses,
    stored,
    user_message,
)
from .handles import OWNER, answering, eventually_queued

pytestmark = pytest.mark.usefixtures("chat")


async def test_a_function_gets_the_transcript_of_its_own_time(doors: Any) -> None:
    script, agent = answering()
    seen: list[list[str]] = []

    def more(current: list[Any]) -> list[Any]:
        seen.append([message_text(m) for m in current])
        return [*current, user_message("second", "u2")]

    async with Tab(agent) as tab:
        await tab.ask("first")
        script.say("one")
        await tab.until(RESPONSE, seq=3)
        saving = asyncio.ensure_future(doors(agent).save_messages(more))
        await eventually_queued(agent, 1)
        assert seen == [] and len(await stored(agent)) == 1
        script.end()
        script.say("two")
        script.end()
        state = await saving
    assert state.status == "completed"
    assert seen == [["first", "one"]]
    assert [message_text(m) for m in await stored(agent)] == [
        "first",
        "one",
        "second",
        "two",
    ]


async def test_a_function_may_be_asynchronous_and_its_error_is_the_caller_s(
    doors: Any,
) -> None:
    _, agent = answering("hi")
    handle = doors(agent)

    async def text(current: list[Any]) -> str:
        await asyncio.sleep(0)
        return f"{len(current)}"

    async def fails(current: list[Any]) -> str:
        raise LookupError("nothing there")

    assert (await handle.save_messages(text)).status == "completed"
    with pytest.raises(LookupError, match="nothing there"):
        await handle.save_messages(fails, request_id="q2")
    assert (await handle.turn("q2")).status == "skipped"
    assert [message_text(m) for m in await stored(agent)] == ["0", "hi"]


async def test_what_was_saved_waits_in_line_whatever_the_mode(doors: Any) -> None:
    script = Script()
    agent = script.agent(message_concurrency="drop")
    async with Tab(agent) as tab:
        await tab.ask("first")
        script.say("one")
        await tab.until(RESPONSE, seq=3)
        saving = asyncio.ensure_future(doors(agent).save_messages("second"))
        await eventually_queued(agent, 1)
        assert len(await stored(agent)) == 1, "stored before its time"
        assert (await doors(agent).submit("third")).status == "skipped"
        script.end()
        script.say("two")
        script.end()
        assert (await saving).status == "completed"


async def test_a_clear_overtakes_what_waits_and_leaves_no_message(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    async with Tab(agent) as tab:
        await tab.ask("first")
        await script.begun.wait()
        listed = asyncio.ensure_future(handle.save_messages("second"))
        made = asyncio.ensure_future(handle.save_messages(lambda current: "third"))
        await eventually_queued(agent, 2)
        await handle.clear()
        assert (await listed).status == (await made).status == "skipped"
        assert (await tab.done())[-1]["outcome"] == "aborted"
    assert await handle.messages() == []


async def test_a_function_may_take_longer_than_a_lease(
    doors: Any, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {"TURN_LEASE": 0.5}
    script, agent = answering("hi", "there")
    handle = doors(agent)

    async def slow(current: list[Any]) -> str:
        await asyncio.sleep(1.2)
        return "made"

    making = asyncio.ensure_future(handle.save_messages(slow))
    await eventually_queued(agent, 1)
    assert (await handle.save_messages("next")).status == "completed"
    assert (await making).status == "completed"
    assert [turn.text for turn in script.turns] == ["made", "next"]


async def test_what_was_brought_is_not_held_again() -> None:
    script, agent = answering()
    ref = ref_of(agent, "room")
    order = Order(request_id="q1", trigger=SAVE, held=5.0)
    await door.run(orders.place, ref, order)
    assert await door.run(orders.come, ref, "q1", 5.0) is True
    assert await door.run(orders.bring, ref, "q1", [user_message("x", "u1")], ["u1"])
    assert await door.run(orders.come, ref, "q1", 5.0) is None
    row = await door.run(lambda: queue.turns().get(request_id="q1"))
    assert row.lease_expires_at is None
    assert script.turns == []


async def test_a_turn_of_a_function_whose_process_died_holds_nobody_up() -> None:
    script, agent = answering("hi")
    order = Order(request_id="dead", trigger=SAVE, held=0.3)
    await door.run(orders.place, ref_of(agent, "room"), order)
    handle = agent.conversation("room", owner=OWNER)
    assert (await handle.asave_messages("hello")).status == "completed"
    dead = await handle.aturn("dead")
    assert dead is not None and dead.status == "skipped"
    assert len(script.turns) == 1


async def test_the_last_message_of_the_assistant_is_continued(doors: Any) -> None:
    script, agent = answering("one", " two")
    handle = doors(agent)
    async with Tab(agent) as tab:
        await tab.ready()
        await handle.save_messages("go on", body={"from": "last"})
        state = await handle.continue_last_turn(request_id="c1")
        assert state.status == "completed"
        frames = await tab.done("c1")
    mine = responses(frames, "c1")
    assert all(frame["continuation"] for frame in mine)
    # The client needs the transcript before the end of a continuation.
    assert [f["type"] for f in frames[-2:]] == [MESSAGES, RESPONSE]
    question, answer = await handle.messages()
    assert message_text(question) == "go on"
    assert message_text(answer) == "one two"
    turn = script.turns[1]
    assert (turn.continuation, turn.trigger) == (True, "continue-last-turn")
    assert turn.messages[-1]["role"] == "assistant"


async def test_there_may_be_nothing_to_continue(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    assert (await handle.continue_last_turn()).status == "skipped"
    await handle.persist_messages("hello")
    assert (await handle.continue_last_turn()).status == "skipped"
    assert script.turns == []


async def test_a_continuation_has_the_body_of_the_last_client_or_its_own(
    doors: Any,
) -> None:
    script, agent = answering("one", "two", "three")
    async with Tab(agent) as tab:
        await tab.ask("x", "q1", mood="calm")
        await tab.done()
    handle = doors(agent)
    await handle.continue_last_turn()
    await handle.continue_last_turn({"mood": "wild"})
    assert [turn.body["mood"] for turn in script.turns] == ["calm", "calm", "wild"]
