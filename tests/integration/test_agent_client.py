"""The agent client of the testing kit, as a project's tests meet it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.chat import AIChatConsumer
from django_streams.chat import callable as client_may_call
from django_streams.testing import (
    AgentClient,
    CallError,
    ClientError,
    Pause,
    Refused,
    ScriptedModel,
    tool_call,
)
from django_streams.testing import tasks as kit_tasks

from .chatting import make_agent

pytestmark = pytest.mark.usefixtures("chat")


def agent_of(model: ScriptedModel, **members: Any) -> type[AIChatConsumer]:
    return make_agent(lambda self, turn: model(turn), **members)


async def test_a_message_gets_the_whole_reply() -> None:
    model = ScriptedModel("Hello there")
    async with AgentClient(agent_of(model), "room 1? #ä%") as chat:
        assert chat.resumed is None
        reply = await chat.send("hi", body={"lang": "en"})
        assert (reply.text, reply.outcome, reply.error) == (
            "Hello there",
            "completed",
            None,
        )
        assert reply.message == (await chat.messages())[1]
        assert reply.parts[-1]["type"] == "text"
        assert chat.transcript == await chat.messages()
        assert chat.identity is not None
    [asked] = model.asked
    assert asked.text == "hi"
    assert asked.args[0].body == {"lang": "en"}


async def test_it_may_be_awaited_and_closed_and_closed_again() -> None:
    chat = await AgentClient.connect(agent_of(ScriptedModel("x")))
    with pytest.raises(ClientError, match="connected already"):
        await chat
    await chat.send("hi")
    await chat.close()
    await chat.close()
    with pytest.raises(ClientError, match="not connected"):
        await chat.send("hi")


async def test_a_reply_in_the_middle_is_replayed_after_a_reconnect() -> None:
    pause = Pause()
    model = ScriptedModel(["one two", pause, " three"])
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.submit("x")
        await reply.says("two")
        assert not reply.done
        await chat.disconnect()
        resumed = await chat.reconnect()
        assert resumed is reply
        assert (reply.text, reply.replayed) == ("one two", len(reply.chunks))
        pause.go()
        await reply.ended()
        assert reply.text == "one two three"
        assert await chat.reconnect() is None


async def test_a_reload_before_the_first_token_waits_for_the_reply() -> None:
    begin = Pause()
    model = ScriptedModel([begin, "late"])

    async def handler(self: Any, turn: Any) -> Any:
        return await model.complete(turn)

    async with AgentClient(make_agent(handler)) as chat:
        await chat.submit("x")
        await begin.reached()
        reply = await chat.reconnect()
        assert reply is not None
        assert reply.text == ""
        begin.go()
        assert (await reply.ended()).text == "late"


async def test_without_resume_a_running_reply_is_not_shown() -> None:
    pause = Pause()
    agent = agent_of(ScriptedModel(["a", pause, "b"]))
    async with AgentClient(agent) as chat, AgentClient(agent, resume=False) as tab:
        reply = await chat.submit("x")
        await pause.reached()
        assert await tab.reconnect() is None
        pause.go()
        await reply.ended()
        await tab.until("cf_agent_use_chat_response", done=True)
        assert len(tab.transcript) == 2


async def test_another_tab_sees_what_the_first_one_asks() -> None:
    agent = agent_of(ScriptedModel("one", "two"))
    async with AgentClient(agent) as chat, AgentClient(agent) as tab:
        for text in ("one", "two"):
            mine = await chat.send("x")
            seen = await (await tab.next_reply()).ended()
            assert seen.request_id == mine.request_id
            assert seen.text == mine.text == text


async def test_visitors_and_users_have_conversations_of_their_own() -> None:
    agent = agent_of(ScriptedModel("one"))
    async with (
        AgentClient(agent, visitor="ann") as ann,
        AgentClient(agent, visitor="bob") as bob,
    ):
        await ann.send("x")
        assert len(await ann.messages()) == 2
        assert await bob.messages() == []


async def test_stop_ends_what_runs_and_keeps_what_was_said() -> None:
    pause = Pause()
    async with AgentClient(agent_of(ScriptedModel(["a", pause]))) as chat:
        assert await chat.stop() is None
        reply = await chat.submit("x")
        await reply.says("a")
        assert await chat.stop() is reply
        assert reply.outcome == "aborted"
        assert len(await chat.messages()) == len(chat.transcript) == 2


async def test_clear_empties_the_conversation_for_all() -> None:
    pause = Pause()
    agent = agent_of(ScriptedModel("a", ["b", pause], "c"))
    async with AgentClient(agent) as chat, AgentClient(agent) as tab:
        await chat.send("x")
        reply = await chat.submit("y")
        await reply.says("b")
        await chat.clear()
        assert reply.outcome == "aborted"
        assert await chat.messages() == chat.transcript == []
        await tab.until("cf_agent_chat_clear")
        assert (await chat.send("z")).text == "c"
        assert len(chat.transcript) == 2


async def test_regenerate_replaces_the_answer() -> None:
    model = ScriptedModel("a", "b")
    async with AgentClient(agent_of(model)) as chat:
        first = await chat.send("x")
        second = await chat.regenerate()
        assert (first.text, second.text) == ("a", "b")
        assert await chat.messages() == chat.transcript
        assert [m["role"] for m in chat.transcript] == ["user", "assistant"]
    assert model.asked[1].args[0].trigger == "regenerate-message"


async def test_an_error_comes_with_what_was_said_before_it() -> None:
    model = ScriptedModel(["half", RuntimeError("secret")])
    async with AgentClient(agent_of(model)) as chat:
        reply = await chat.send("x")
        assert reply.outcome == "error"
        assert reply.error is not None
        assert reply.error.startswith("Internal error (reference")
        assert reply.text == "half"
        assert (await chat.messages())[1] == reply.message
        again = await chat.reconnect()
        assert again is reply
        assert again.outcome == "error"


async def test_a_question_without_an_answer_says_so_in_the_reply() -> None:
    async with AgentClient(agent_of(ScriptedModel())) as chat:
        reply = await chat.send("what?")
    assert reply.error is not None
    assert "no answer to 'what?'" in reply.error


async def test_tool_calls_are_parts_that_can_be_found() -> None:
    calls = [
        *tool_call("weather", {"city": "Oslo"}, output="rain"),
        *tool_call("pay", {"amount": 5}, error="declined"),
    ]
    async with AgentClient(agent_of(ScriptedModel([calls, "done"]))) as chat:
        reply = await chat.send("x")
    assert reply.tool("weather")["output"] == "rain"
    assert reply.tool("pay")["errorText"] == "declined"
    with pytest.raises(LookupError, match="no call of the tool 'dance'"):
        reply.tool("dance")


async def test_waiting_for_a_text_fails_when_the_reply_ends_without_it() -> None:
    async with AgentClient(agent_of(ScriptedModel("hello"))) as chat:
        reply = await chat.submit("x")
        with pytest.raises(ClientError, match="without saying 'bye'; it said 'hello'"):
            await reply.says("bye")


async def test_waiting_in_vain_names_what_for_and_what_came() -> None:
    pause = Pause()
    async with AgentClient(agent_of(ScriptedModel(["hello", pause]))) as chat:
        reply = await chat.submit("x")
        await reply.says("hello")
        with pytest.raises(ClientError) as failure:
            await reply.ended(timeout=0.05)
        said = str(failure.value)
        assert f"waited 0.05 s for the end of the reply {reply.request_id!r}" in said
        assert '"type": "cf_agent_identity"' in said
        assert "hello" in said
        # The application lives on.
        pause.go()
        assert (await reply.ended()).text == "hello"


async def test_until_looks_at_each_frame_once() -> None:
    async with AgentClient(agent_of(ScriptedModel("a"))) as chat:
        await chat.until("cf_agent_chat_messages", connect=True)
        with pytest.raises(ClientError, match="'connect': True"):
            await chat.until("cf_agent_chat_messages", timeout=0.05, connect=True)


async def test_a_refusal_has_the_close_code() -> None:
    closed = agent_of(ScriptedModel(), allow_anonymous=False)
    with pytest.raises(Refused, match="no login") as refusal:
        async with AgentClient(closed):
            pass
    assert refusal.value.code == 4401
    forbidden = agent_of(ScriptedModel(), authorize=lambda self, user, ref: False)
    with pytest.raises(Refused, match="not admitted") as refusal:
        await AgentClient(forbidden)
    assert refusal.value.code == 4403


async def test_what_a_hook_raises_is_not_hidden() -> None:
    def authorize(self: Any, user: Any, ref: Any) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ClientError):
        await AgentClient(agent_of(ScriptedModel(), authorize=authorize), timeout=2)


async def test_raw_frames_go_both_ways() -> None:
    async with AgentClient(agent_of(ScriptedModel())) as chat:
        await chat.send_frame("no json")
        await chat.send_frame({"type": "rpc", "id": "r", "method": "none", "args": []})
        frame = await chat.until("rpc", id="r")
        assert frame["success"] is False


async def test_calls_return_results_and_raise_errors() -> None:
    @client_may_call
    def add(self: Any, a: int, b: int) -> int:
        return a + b

    @client_may_call
    async def steps(self: Any) -> AsyncIterator[int]:
        yield 1
        yield 2

    agent = agent_of(ScriptedModel(), add=add, steps=steps)
    async with AgentClient(agent) as chat:
        assert await chat.call("add", 1, 2) == 3
        assert await chat.call("steps") == [1, 2]
        with pytest.raises(CallError, match="does not exist"):
            await chat.call("other")


async def test_the_state_is_shared() -> None:
    agent = agent_of(ScriptedModel(), get_initial_state=lambda self: {"n": 0})
    async with AgentClient(agent) as chat, AgentClient(agent) as tab:
        assert chat.state == {"n": 0}
        await tab.set_state({"n": 1})
        await chat.until("cf_agent_state", state={"n": 1})
        assert chat.state == tab.state == {"n": 1}


async def test_nothing_runs_on_when_the_last_client_has_closed() -> None:
    pause = Pause()
    model = ScriptedModel(["a", pause])
    agent = agent_of(model)
    async with AgentClient(agent) as chat:
        async with AgentClient(agent) as tab:
            reply = await tab.submit("x")
            await pause.reached()
        seen = await chat.next_reply()
        assert not seen.done
    assert seen.outcome == "aborted"
    assert not reply.done
    assert not kit_tasks.running()


async def test_what_the_last_client_does_not_see_is_ended_as_well() -> None:
    pause = Pause()
    model = ScriptedModel(["a", pause])
    async with AgentClient(agent_of(model)) as chat:
        await chat.submit("x")
        await pause.reached()
        await chat.disconnect()
    assert not kit_tasks.running()
    assert not model.asked[0].ended


async def test_a_handler_that_does_not_stop_is_named() -> None:
    here, go = asyncio.Event(), asyncio.Event()

    async def handler(self: Any, turn: Any) -> str:
        while not go.is_set():
            try:
                here.set()
                await go.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    chat = await AgentClient(make_agent(handler), timeout=0.2)
    await chat.submit("x")
    async with asyncio.timeout(10):
        await here.wait()
    with pytest.raises(ClientError, match="swallow CancelledError"):
        await chat.close()
    go.set()


async def test_agents_of_one_name_take_turns() -> None:
    one = agent_of(ScriptedModel("one"), agent_name="same")
    two = agent_of(ScriptedModel("two"), agent_name="same")
    for agent, text in ((one, "one"), (two, "two")):
        async with AgentClient(agent) as chat:
            assert (await chat.send("x")).text == text


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("support",), "must be an AIChatConsumer class"),
        ((AIChatConsumer, ""), "conversation name"),
        ((AIChatConsumer, "x\0"), "conversation name"),
        ((AIChatConsumer, "a/b"), "a name is one"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        AgentClient(*arguments)


def test_a_user_and_a_client_exclude_each_other() -> None:
    with pytest.raises(TypeError, match="not both"):
        AgentClient(AIChatConsumer, user=object(), client=object())
