"""Answers to tool calls by the agent client, and what follows them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_streams.chat import tool
from django_streams.exceptions import PublicError
from django_streams.testing import (
    AgentClient,
    CallError,
    ClientError,
    Pause,
    Reply,
    ScriptedModel,
    tool_call,
)

from .chatting import make_agent
from .test_agent_client import agent_of

pytestmark = pytest.mark.usefixtures("chat")

WHERE = tool_call("where", {"precise": True})
PAY = tool_call("pay", {"amount": 5}, needs_approval=True)


def shown(message: Any) -> dict[str, Any]:
    return {p["toolCallId"]: p for p in message["parts"] if "toolCallId" in p}


async def test_a_result_is_followed_by_the_rest_of_the_reply() -> None:
    model = ScriptedModel(["Let me see. ", WHERE], "You are in Oslo.")
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x", client_tools=[{"name": "where"}])
        call = reply.tool("where")
        rest = await chat.answer_tool(call, {"city": "Oslo"})
        assert rest is not None
        assert (rest.continuation, rest.outcome) == (True, "completed")
        assert rest.text == "Let me see. You are in Oslo."
        assert rest.tool("where")["output"] == {"city": "Oslo"}
        assert chat.transcript == await chat.messages()
        assert len(chat.transcript) == 2
    _, continued = model.asked
    assert continued.args[0].continuation
    assert continued.args[0].client_tools == [{"name": "where"}]


async def test_other_client_tools_come_with_a_result() -> None:
    model = ScriptedModel([WHERE], "ok")
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x", client_tools=[{"name": "where"}])
        call_id = reply.tool("where")["toolCallId"]
        await chat.answer_tool(call_id, 1, client_tools=[{"name": "other"}])
    assert model.asked[1].args[0].client_tools == [{"name": "other"}]


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_approval_is_given_or_refused(allowed: bool) -> None:
    model = ScriptedModel([PAY], "Well then.")
    async with AgentClient(agent_of(model)) as chat:
        call = (await chat.send("x")).tool("pay")
        assert call["state"] == "approval-requested"
        rest = await (chat.approve(call) if allowed else chat.deny(call))
        assert rest is not None
        assert rest.text == "Well then."
        state = "approval-responded" if allowed else "output-denied"
        assert rest.tool("pay")["state"] == state
        assert rest.tool("pay")["approval"]["approved"] is allowed


async def test_an_approved_tool_of_the_agent_has_run_when_the_reply_has_ended() -> None:
    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    model = ScriptedModel([tool_call("pay", {"amount": 5})], "Done.")
    async with AgentClient(agent_of(model, tools=[pay])) as chat:
        reply = await chat.send("x")
        rest = await chat.approve(reply.tool("pay"))
        assert rest is not None
        assert rest.tool("pay")["output"] == "paid 5"
        assert rest.text == "Done."


async def test_the_reply_goes_on_after_the_last_answer_of_a_batch() -> None:
    model = ScriptedModel([WHERE, PAY, tool_call("when", {})], "All known.")
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x")
        assert await chat.answer_tool(reply.tool("where"), "Oslo") is None
        assert await chat.approve(reply.tool("pay")) is None
        # A failure asks for nothing itself; the others did.
        rest = await chat.fail_tool(reply.tool("when"), "no clock")
        assert rest is not None
        assert rest.text == "All known."
        assert rest.tool("when")["errorText"] == "no clock"
    assert len(model.asked) == 2


async def test_a_failure_alone_is_followed_by_nothing_unless_asked_for() -> None:
    model = ScriptedModel([WHERE], [WHERE], "sorry")
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x")
        assert await chat.fail_tool(reply.tool("where")) is None
        part = shown((await chat.messages())[1])[reply.tool("where")["toolCallId"]]
        assert part["errorText"] == "Tool execution denied by user"
        reply = await chat.regenerate()
        rest = await chat.fail_tool(reply.tool("where"), "lost", continues=True)
        assert rest is not None
        assert rest.text == "sorry"


async def test_a_result_that_asks_for_nothing_is_stored_and_no_more() -> None:
    model = ScriptedModel([WHERE])
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x")
        call = reply.tool("where")
        assert await chat.answer_tool(call, "Oslo", continues=False) is None
        part = shown((await chat.messages())[1])[call["toolCallId"]]
        assert part["output"] == "Oslo"
        # The first answer counts.
        assert await chat.answer_tool(call, "Rome") is None
        assert shown((await chat.messages())[1])[call["toolCallId"]] == part


async def test_a_continuation_with_nothing_to_say_is_nothing_that_follows() -> None:
    async def handler(self: Any, turn: Any) -> Any:
        return None if turn.continuation else WHERE

    async with AgentClient(make_agent(handler)) as chat:
        reply = await chat.send("x")
        assert await chat.answer_tool(reply.tool("where"), 1) is None


async def test_who_comes_back_to_a_continuation_with_nothing_to_say_is_let_go() -> None:
    here, go = asyncio.Event(), asyncio.Event()

    async def handler(self: Any, turn: Any) -> Any:
        if not turn.continuation:
            return WHERE
        here.set()
        await go.wait()
        return None

    async with AgentClient(make_agent(handler)) as chat:
        reply = await chat.send("x")
        await chat.answer_tool(reply.tool("where"), 1, wait=False)
        async with asyncio.timeout(10):
            await here.wait()
        waited_for = await chat.reconnect()
        assert waited_for is not None
        go.set()
        assert (await waited_for.ended()).text == ""


async def test_the_continuation_can_be_watched_from_its_beginning() -> None:
    pause = Pause()
    model = ScriptedModel([WHERE], ["You are", pause, " in Oslo."])
    agent = agent_of(model)
    async with AgentClient(agent) as chat, AgentClient(agent) as tab:
        reply = await chat.send("x")
        await chat.answer_tool(reply.tool("where"), "Oslo", wait=False)
        rest = await chat.next_reply()
        await rest.says("You are")
        rest = await chat.reconnect() or Reply("none", chat._wait, base=lambda: None)
        assert rest.text == "You are"
        pause.go()
        assert (await rest.ended()).text == "You are in Oslo."
        await (await tab.next_reply()).ended()
        await (await tab.next_reply()).ended()
        assert tab.transcript == chat.transcript == await chat.messages()


async def test_an_answer_may_come_while_the_reply_is_being_written() -> None:
    pause = Pause()
    model = ScriptedModel([WHERE, "and ", pause, "more. "], "Then this.")
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.submit("x")
        await reply.says("and")
        answering = asyncio.create_task(chat.answer_tool(reply.tool("where"), 1))
        pause.go()
        rest = await answering
        assert rest is not None
        assert rest.text == "and more. Then this."


async def test_another_tab_may_answer_what_the_first_one_asked() -> None:
    model = ScriptedModel([PAY], "paid")
    agent = agent_of(model)
    async with AgentClient(agent) as chat:
        call = (await chat.send("x")).tool("pay")
        async with AgentClient(agent) as tab:
            rest = await tab.approve(call)
            assert rest is not None
            assert (await (await chat.next_reply()).ended()).text == rest.text == "paid"


async def test_a_call_that_was_not_seen_is_named() -> None:
    async with AgentClient(agent_of(ScriptedModel([WHERE]))) as chat:
        call_id = (await chat.send("x")).tool("where")["toolCallId"]
        with pytest.raises(ClientError, match=f"no call 'other'.*{call_id}"):
            await chat.answer_tool("other", 1)


async def test_a_state_that_is_refused_is_an_error_and_not_kept() -> None:
    def validate_state(self: Any, state: Any, user: Any) -> None:
        if state["n"] < 0:
            raise PublicError("below zero")

    agent = agent_of(ScriptedModel(), validate_state=validate_state)
    async with AgentClient(agent) as chat:
        await chat.set_state({"n": 1})
        with pytest.raises(CallError, match="State update rejected"):
            await chat.set_state({"n": -1})
        assert chat.state == {"n": 1}
        await chat.reconnect()
        assert chat.state == {"n": 1}
