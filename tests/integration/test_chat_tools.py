"""Tools that a client runs or allows, and the continuation after them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_streams.messages.repair import INTERRUPTED_TEXT
from django_streams.models import Conversation
from django_streams.turns import door

from .chatting import (
    MESSAGES,
    NONE,
    PENDING,
    RESPONSE,
    RESUMING,
    Frame,
    Script,
    Tab,
    message_text,
    responses,
    stored,
    text_of,
)

pytestmark = pytest.mark.usefixtures("chat")

UPDATED = "cf_agent_message_updated"
TOOLS = [{"name": "loc", "description": "d", "parameters": {"type": "object"}}]


def call(call_id: str = "t1", name: str = "loc") -> dict[str, Any]:
    members = {"toolCallId": call_id, "toolName": name, "input": {"q": 1}}
    return {"type": "tool-input-available"} | members


def result(call_id: str = "t1", **members: Any) -> Frame:
    kind = {"type": "cf_agent_tool_result", "toolCallId": call_id, "toolName": "loc"}
    return kind | {"output": {"city": "X"}, "autoContinue": True} | members


def approval(approved: bool, call_id: str = "t1", **members: Any) -> Frame:
    kind = {"type": "cf_agent_tool_approval", "toolCallId": call_id}
    return kind | {"approved": approved, "autoContinue": True} | members


def parts(message: dict[str, Any]) -> dict[str, Any]:
    """The tool parts of a message by their calls."""
    return {p["toolCallId"]: p for p in message["parts"] if "toolCallId" in p}


def said(frames: list[Frame]) -> str:
    """The text of the turn that ends with *frames*."""
    return text_of(frames, frames[-1]["id"])


async def asked(tab: Tab, script: Script, *items: Any) -> None:
    """A reply that calls tools and ends."""
    script.say(*items)
    script.end()
    await tab.ask("x", "q1", clientTools=TOOLS, custom="c")
    await tab.done()


async def shown(tab: Tab, kind: str) -> None:
    """Wait for a chunk of that type."""
    while f'"type":"{kind}"' not in (await tab.until(RESPONSE))["body"]:
        pass


async def continued(tab: Tab, script: Script, text: str) -> list[Frame]:
    """Accept the offer of the continuation, have it say *text*; what comes."""
    request_id = (await tab.until(RESUMING))["id"]
    await tab.ack(request_id)
    await tab.until(RESPONSE, id=request_id, replayComplete=True)
    script.say(text)
    script.end()
    return await tab.done(request_id)


async def test_a_result_is_written_down_and_the_reply_goes_on_in_its_message() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await asked(tab, script, "Let me see. ", call())
        await other.done()
        await tab.send(result())
        for each in (tab, other):
            updated = (await each.until(UPDATED))["message"]
            part = parts(updated)["t1"]
            assert part["state"] == "output-available"
            assert part["output"] == {"city": "X"}
        frames = await continued(tab, script, "You are in X.")
        request_id = frames[-1]["id"]
        mine = responses(frames, request_id)
        theirs = responses(await other.done(request_id), request_id)
    assert request_id != "q1"
    assert all(frame["continuation"] for frame in (*mine, *theirs))
    assert "messageId" not in mine[0]["body"]
    assert said(mine) == said(theirs) == "You are in X."
    # Who asked shows it as a second message until it has the transcript.
    assert [f["type"] for f in frames[-2:]] == [MESSAGES, RESPONSE]
    assert "messageIds" not in frames[-1]
    _, answer = await stored(agent)
    assert message_text(answer) == "Let me see. You are in X."
    assert updated["id"] == answer["id"]
    turn = script.turns[1]
    assert turn.continuation and turn.body == {"custom": "c"}
    assert turn.client_tools == TOOLS
    assert parts(turn.messages[-1])["t1"]["output"] == {"city": "X"}


async def test_a_continuation_accepted_after_its_end_brings_the_transcript() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await asked(tab, script, "Let me see. ", call())
        await other.done()
        await tab.send(result())
        request_id = (await tab.until(RESUMING))["id"]
        script.say("You are in X.")
        script.end()
        for each in (tab, other):
            await each.done(request_id)
        for each in (tab, other):
            await each.ack(request_id)
            *replay, transcript, last = await each.done(request_id)
            assert said(replay) == "You are in X."
            assert all(frame["replay"] for frame in replay)
            assert transcript["type"] == MESSAGES
            whole = message_text(transcript["messages"][-1])
            assert whole == "Let me see. You are in X."
            assert last["replay"] and last["continuation"]


async def test_of_parallel_calls_all_are_answered_before_it_goes_on() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"), call("t2"))
        await tab.send(result("t1"))
        await tab.until(UPDATED)
        # Waits for the other one, as long as it takes.
        assert (await tab.probe())["type"] == PENDING
        assert len(script.turns) == 1
        failure = {"state": "output-error", "autoContinue": False}
        await tab.send(result("t2", **failure))
        assert said(await continued(tab, script, "both")) == "both"
    assert len(script.turns) == 2
    found = parts((await stored(agent))[1])
    assert found["t1"]["state"] == "output-available"
    assert found["t2"]["state"] == "output-error"
    assert found["t2"]["errorText"] == "Tool execution denied by user"


async def test_the_same_result_counts_once_from_wherever_it_comes() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await asked(tab, script, call())
        await other.done()
        await tab.send(result())
        await tab.send(result())
        await other.until(UPDATED)
        await other.send(result())
        assert said(await continued(tab, script, "once")) == "once"
        await tab.send(result(output="else"))
        assert await tab.silent()
        assert [f["type"] for f in tab.kept].count(UPDATED) == 1
    assert len(script.turns) == 2
    assert parts((await stored(agent))[1])["t1"]["output"] == {"city": "X"}


async def test_a_result_without_a_wish_to_go_on_runs_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call())
        await tab.send(result(autoContinue=False))
        await tab.until(UPDATED)
        assert (await tab.probe())["type"] == NONE
    assert len(script.turns) == 1


async def test_a_result_of_no_call_continues_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say("a")
        await tab.ask("x")
        await shown(tab, "text-delta")
        await tab.send(result("unknown"))
        await tab.probe()
        await tab.ack("q1")
        script.end()
        await tab.done()
        # It waited for a reply that had the call, and waits no more.
        assert await tab.until(NONE) == {"type": NONE}
        await tab.send(result("unknown"))
        assert await tab.silent()
        assert (await tab.probe("p2"))["type"] == NONE
    assert len(script.turns) == 1
    assert await awaited(agent) is None


async def awaited(agent: Any) -> str | None:
    """What the conversation's row keeps."""
    rows: Any = Conversation.objects.using(door.alias()).filter(agent=agent.agent_name)
    return await door.run(rows.values_list("awaited", flat=True).get)


async def test_results_may_come_while_the_reply_is_being_written() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call())
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "tool-input-available")
        await tab.send(result())
        await tab.send(result("unknown"))
        await tab.probe()
        script.say("and more. ")
        script.end()
        await tab.ack("q1")
        await tab.done()
        assert said(await continued(tab, script, "Then this.")) == "Then this."
    _, answer = await stored(agent)
    assert parts(answer)["t1"]["output"] == {"city": "X"}
    assert message_text(answer) == "and more. Then this."


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_can_be_given_after_a_reload_in_mid_reply(
    approved: bool,
) -> None:
    script = Script()
    agent = script.agent()
    request = {
        "type": "tool-approval-request",
        "approvalId": "ap1",
        "toolCallId": "t1",
    }
    async with Tab(agent) as tab:
        script.say(call(), request)
        await tab.ask("x")
        await shown(tab, "tool-approval-request")
    while len(await stored(agent)) < 2:
        await asyncio.sleep(0.01)
    async with Tab(agent) as tab:
        _, transcript = await tab.ready()
        part = parts(transcript["messages"][1])["t1"]
        assert part["state"] == "approval-requested"
        await tab.send(approval(approved))
        part = parts((await tab.until(UPDATED))["message"])["t1"]
        state = "approval-responded" if approved else "output-denied"
        assert part["state"] == state
        assert part["approval"] == {"id": "ap1", "approved": approved}
        script.end()
        await tab.until(RESPONSE, id="q1", done=True)
        assert said(await continued(tab, script, "Well.")) == "Well."
    (_, answer) = await stored(agent)
    assert parts(answer)["t1"]["approval"]["approved"] is approved
    assert parts(script.turns[1].messages[-1])["t1"]["state"] == state


async def test_calls_that_nobody_will_answer_are_ended_before_the_next_turn() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"), call("t2", "server_tool"))
        await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS)
        # Who asked is told too: it shows the call as running.
        frame = await tab.until(MESSAGES)
        while parts(frame["messages"][1])["t2"]["state"] == "input-available":
            frame = await tab.until(MESSAGES)
        script.say("ok")
        script.end()
        await tab.done("q2")
    for messages in (frame["messages"], script.turns[1].messages):
        (answer,) = [m for m in messages if m["role"] == "assistant"]
        assert parts(answer)["t1"]["state"] == "input-available"
        assert parts(answer)["t2"]["errorText"] == INTERRUPTED_TEXT


async def test_a_clear_drops_a_continuation_that_waits() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"), call("t2"))
        await tab.send(result("t1"))
        assert (await tab.probe())["type"] == PENDING
        await tab.send({"type": "cf_agent_chat_clear"})
        assert await tab.until(NONE) == {"type": NONE}
        await tab.send(result("t2"))
        assert (await tab.probe("p2"))["type"] == NONE
    assert len(script.turns) == 1


async def test_a_message_that_comes_before_the_last_answer_is_answered_first() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"), call("t2"))
        await tab.send(result("t1"))
        await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS)
        script.say("meanwhile")
        script.end()
        # It is this connection's own: not offered, but shown.
        assert said(await tab.done("q2")) == "meanwhile"
        # What was asked for waits for a reply that is not the newest any more.
        assert await tab.until(NONE) == {"type": NONE}
        # But who gives the last answer now wants to hear of it.
        await tab.send(result("t2"))
        assert said(await continued(tab, script, " and on")) == " and on"
    assert message_text((await stored(agent))[-1]) == "meanwhile and on"
    assert len(script.turns) == 3


async def test_a_continuation_with_nothing_to_say_lets_go_who_waits() -> None:
    script = Script()
    quiet = script.agent()

    async def on_chat_message(self: Any, turn: Any) -> Any:
        if turn.continuation:
            return None
        return [call()]

    quiet.on_chat_message = on_chat_message  # type: ignore[method-assign]
    async with Tab(quiet) as tab:
        await tab.ask("x", clientTools=TOOLS)
        await tab.done()
        await tab.send(result())
        assert await tab.until(NONE, type=NONE) == {"type": NONE}


@pytest.mark.parametrize("early", [True, False])
async def test_an_answer_is_sanitised_as_a_part_of_its_message(early: bool) -> None:
    def sanitize_message(self: Any, message: dict[str, Any]) -> dict[str, Any]:
        kept = [p | {"output": "***"} if "output" in p else p for p in message["parts"]]
        return message | {"parts": kept}

    script = Script()
    agent = script.agent(sanitize_message=sanitize_message)
    async with Tab(agent) as tab:
        script.say(call())
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "tool-input-available")
        if early:
            await tab.send(result(output="secret"))
            await tab.probe()
            await tab.ack("q1")
        script.end()
        await tab.done()
        if not early:
            await tab.send(result(output="secret"))
        await continued(tab, script, "on")
    told = [f["message"] for f in tab.kept if f["type"] == UPDATED]
    assert len(told) == 1 - early
    (_, answer) = await stored(agent)
    for message in (*told, answer, script.turns[1].messages[-1]):
        assert parts(message)["t1"]["output"] == "***"


async def test_an_answer_that_cannot_be_sanitised_changes_nothing() -> None:
    def sanitize_message(self: Any, message: dict[str, Any]) -> dict[str, Any]:
        assert "output" not in str(message)
        return message

    script = Script()
    agent = script.agent(sanitize_message=sanitize_message)
    async with Tab(agent) as tab:
        await asked(tab, script, call())
        await tab.send(result())
        assert (await tab.probe())["type"] == NONE
    assert parts((await stored(agent))[1])["t1"]["state"] == "input-available"
