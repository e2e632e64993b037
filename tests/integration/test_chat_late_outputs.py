"""Outputs of calls that an earlier message made than the one being written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from django_streams.chat import tool
from django_streams.messages.answers import late_output
from django_streams.turns import answering, door, queue
from django_streams.turns.records import TurnStatus

from .chatting import (
    MESSAGES,
    RESPONSE,
    RESUMING,
    Script,
    Tab,
    chunks,
    make_agent,
    message_text,
    ref_of,
    stored,
    turn_of,
)
from .test_chat_tools import UPDATED, approval, call, parts, shown

pytestmark = pytest.mark.usefixtures("chat")


def output(value: Any, call_id: str = "t1") -> dict[str, Any]:
    kind = {"type": "tool-output-available", "toolCallId": call_id}
    return kind | {"output": value}


REQUEST = {"type": "tool-approval-request", "approvalId": "ap", "toolCallId": "t1"}


async def asked_and_went_on(tab: Tab, script: Script, name: str = "pay") -> None:
    """A call waits for its approval; meanwhile there was another reply."""
    script.say(call("t1", name), REQUEST)
    script.end()
    await tab.ask("x", "q1")
    await tab.done("q1")
    script.say("Meanwhile. ")
    script.end()
    await tab.ask("y", "q2", *(await stored(tab.agent)))
    await tab.done("q2")


async def continuing(tab: Tab) -> str:
    """Allow the call, and accept the reply that goes on."""
    await tab.send(approval(True))
    request_id = str((await tab.until(RESUMING))["id"])
    await tab.ack(request_id)
    await tab.until(RESPONSE, id=request_id, replayComplete=True)
    return request_id


async def test_it_is_stored_and_told_while_the_other_message_is_written() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await asked_and_went_on(tab, script)
        await other.done("q2")
        request_id = await continuing(tab)
        script.say("Paid: ", output(9))
        for each in (tab, other):
            while True:
                told = (await each.until(UPDATED))["message"]
                if parts(told)["t1"]["state"] == "output-available":
                    break
            assert parts(told)["t1"]["output"] == 9
        assert (await turn_of(agent, request_id)).status is TurnStatus.RUNNING
        assert told == (await stored(agent))[1]
        script.say("nine.")
        script.end()
        frames = await tab.done(request_id)
        assert [f["type"] for f in frames[-2:]] == [MESSAGES, RESPONSE]
    # A client gives up on a reply with an output of a call that it does not have.
    assert output(9) not in chunks(tab.kept, request_id)
    _, first, _, second = await stored(agent)
    assert parts(first)["t1"]["output"] == 9
    assert message_text(second) == "Meanwhile. Paid: nine."
    assert "t1" not in parts(second)


async def test_the_first_answer_counts_and_an_unknown_call_changes_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked_and_went_on(tab, script)
        request_id = await continuing(tab)
        before = len(tab.kept)
        script.say(output(1), output(2), output(3, "unknown"), "on")
        script.end()
        await tab.done(request_id)
    told = [f for f in tab.kept[before:] if f["type"] == UPDATED]
    assert [parts(f["message"])["t1"]["output"] for f in told] == [1]
    _, first, _, second = await stored(agent)
    assert parts(first)["t1"]["output"] == 1
    assert message_text(second) == "Meanwhile. on"


async def test_a_failed_one_is_told_with_its_reason() -> None:
    script = Script()
    agent = script.agent()
    failed = {"type": "tool-output-error", "toolCallId": "t1", "errorText": "no money"}
    async with Tab(agent) as tab:
        await asked_and_went_on(tab, script)
        request_id = await continuing(tab)
        script.say(failed)
        script.end()
        await tab.done(request_id)
    part = parts((await stored(agent))[1])["t1"]
    assert (part["state"], part["errorText"]) == ("output-error", "no money")


async def test_a_tool_of_the_agent_runs_when_an_earlier_call_of_it_is_allowed() -> None:
    paid: list[int] = []
    seen: list[Any] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
        if turn.continuation:
            seen.append(parts(turn.messages[1])["t1"])
            yield f"It is {turn.result('t1').output}."
        elif turn.text == "x":
            await turn.call("pay", {"amount": 5}, call_id="t1")
        else:
            yield "Meanwhile. "

    agent = make_agent(on_chat_message, tools=[pay])
    async with Tab(agent) as tab:
        await tab.ask("x", "q1")
        await tab.done("q1")
        await tab.ask("y", "q2", *(await stored(agent)))
        await tab.done("q2")
        await tab.send(approval(True))
        request_id = (await tab.until(RESUMING))["id"]
        await tab.ack(request_id)
        await tab.done(request_id)
    assert paid == [5]
    _, first, _, second = await stored(agent)
    assert seen == [parts(first)["t1"]]
    assert parts(first)["t1"]["output"] == "paid"
    assert message_text(second) == "Meanwhile. It is paid."


async def test_a_run_that_lost_its_turn_or_was_cleared_settles_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked_and_went_on(tab, script)
        request_id = await continuing(tab)
        turn = await turn_of(agent, request_id)
        change = late_output(output(9))
        assert change is not None
        ref = ref_of(agent, "room")
        settle = answering.settle_earlier
        message = turn.message_id
        found = await answering.propose(agent(), ref, change, but=message)
        with pytest.raises(queue.Lost):
            stale = replace(turn, epoch=turn.epoch - 1)
            await door.run(settle, stale, ref.wake_key, change, found)
        old = replace(turn, generation=turn.generation - 1)
        assert await door.run(settle, old, ref.wake_key, change, found) is None
        assert parts((await stored(agent))[1])["t1"]["state"] == "approval-responded"
        assert await door.run(settle, turn, ref.wake_key, change, found) is not None
        script.end()
        await tab.done(request_id)


async def test_a_handler_that_lost_its_turn_is_stopped_at_one() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked_and_went_on(tab, script)
        request_id = await continuing(tab)
        script.say("a")
        await shown(tab, "text-delta")
        script.ended.clear()
        rows: Any = queue.turns().filter(request_id=request_id)
        await door.run(rows.update, epoch=7)
        script.say(output(9))
        async with asyncio.timeout(5):
            await script.ended.wait()
        assert parts((await stored(agent))[1])["t1"]["state"] == "approval-responded"
