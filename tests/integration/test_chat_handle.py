"""A conversation in the hands of code, through both doors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections

from django_streams.exceptions import StreamUsageError
from django_streams.turns import door, status
from django_streams.turns.agents import register
from django_streams.turns.runner import get_runner

from .chatting import (
    MESSAGES,
    RESPONSE,
    TIMEOUT,
    Script,
    Tab,
    eventually_stored,
    make_agent,
    message_text,
    ref_of,
    stored,
    text_of,
    user_message,
)
from .handles import OWNER, answering, eventually_queued

pytestmark = pytest.mark.usefixtures("chat")


async def test_making_a_handle_does_no_io() -> None:
    # On a running loop whatever queries or blocks would raise.
    async def never(self: Any, turn: Any) -> None:
        raise AssertionError

    def asks(self: Any, user: Any, name: str) -> str:
        raise AssertionError

    agent = make_agent(never, conversation_owner=asks)
    handle = agent.conversation("room", owner=None)
    assert repr(handle) == f"<conversation 'room' of {agent.agent_name}>"
    with pytest.raises(ValueError, match="conversation name"):
        agent.conversation("")


async def test_saving_messages_runs_a_turn_and_tells_how_it_ended(doors: Any) -> None:
    script, agent = answering("hi")
    async with Tab(agent) as tab:
        await tab.ready()
        handle = doors(agent)
        state = await handle.save_messages("hello", request_id="q1", body={"k": 1})
        assert (state.request_id, state.status, state.over) == ("q1", "completed", True)
        frames = await tab.done("q1")
    assert text_of(frames) == "hi"
    assert [f["type"] for f in frames[-2:]] == [MESSAGES, RESPONSE]
    assert [message_text(m) for m in frames[-2]["messages"]] == ["hello", "hi"]
    turn = script.turns[0]
    assert (turn.text, turn.trigger, turn.body) == ("hello", "save-messages", {"k": 1})
    assert [message_text(m) for m in await handle.messages()] == ["hello", "hi"]
    assert await handle.turn("q1") == state
    assert await handle.turn("unknown") is None


async def test_persisted_messages_are_stored_in_place_and_shown(doors: Any) -> None:
    script, agent = answering("hi")
    handle = doors(agent)
    async with Tab(agent) as tab:
        await tab.ready()
        await handle.persist_messages([user_message("a", "u1")])
        assert (await tab.next())["messages"] == [user_message("a", "u1")]
        answer = {"id": "a1", "role": "assistant", "parts": []}
        await handle.persist_messages(answer)
        longer = {**answer, "parts": [{"type": "text", "text": "by hand"}]}
        await handle.persist_messages([user_message("b", "u1"), longer])
    assert await handle.messages() == [user_message("b", "u1"), longer]
    assert script.turns == []


async def test_a_submit_is_a_client_s_and_returns_at_once(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    state = await handle.submit("hello", request_id="q1", client_tools=[{"name": "t"}])
    assert (state.status, state.over) == ("queued", False)
    again = await handle.submit("hello again", request_id="q1")
    assert again.request_id == "q1"
    async with Tab(agent):
        # Somebody's loop runs it, also when it was submitted by a thread.
        script.say("hi")
        script.end()
        newest = await handle.wait_until_idle(timeout=10)
    assert newest is not None and newest.status == "completed"
    # Text, and no member of an enumeration of ours.
    assert type(newest.status) is str
    assert script.turns[0].client_tools == [{"name": "t"}]
    assert [message_text(m) for m in await handle.messages()] == ["hello", "hi"]


async def test_stop_reaches_what_runs_and_what_waits(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    async with Tab(agent) as tab:
        await tab.ask("first")
        script.say("par", "tial")
        await tab.until(RESPONSE, seq=4)
        await tab.ask("second", "q2")
        await eventually_queued(agent, 1)
        state = await handle.stop()
        assert (state.request_id, state.status) == ("q1", "running")
        assert (await handle.turn("q2")).status == "aborted"
        newest = await handle.wait_until_idle(timeout=2)
        assert newest.status == "aborted"
        # What is over stays as it is, and says how it ended.
        assert (await handle.stop("q1")).status == "aborted"
        assert (await handle.stop()).status == "aborted"
    assert len(script.turns) == 1
    texts = [message_text(m) for m in await handle.messages()]
    assert texts == ["first", "second", "partial"]


async def test_stopping_what_has_completed_says_so(doors: Any) -> None:
    _, agent = answering("hi")
    handle = doors(agent)
    assert await handle.stop() is None
    await handle.save_messages("hello", request_id="q1")
    assert (await handle.stop("q1")).status == "completed"
    assert (await handle.stop()).status == "completed"
    assert await handle.stop("unknown") is None


async def test_what_was_stopped_is_there_for_the_next_turn(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    async with Tab(agent) as tab:
        await tab.ask("first")
        script.say("partial")
        await tab.until(RESPONSE, seq=3)
        await handle.stop()
        await tab.done()
    script.say("and more")
    script.end()
    await handle.save_messages("go on")
    texts = [message_text(m) for m in script.turns[1].messages]
    assert texts == ["first", "partial", "go on"]


async def test_a_failed_turn_says_what_its_readers_were_told(doors: Any) -> None:
    from django_streams import PublicError

    script = Script()
    script.say(PublicError("kaput"))
    state = await doors(script.agent()).save_messages("hello")
    assert (state.status, state.error) == ("error", "kaput")


async def test_clear_empties_it_and_calls_the_hook_once(doors: Any) -> None:
    cleared: list[Any] = []
    script = Script()
    script.say("hi")
    script.end()

    def on_clear(self: Any, conversation: Any) -> None:
        cleared.append(conversation)

    agent = script.agent(on_clear=on_clear)
    handle = doors(agent)
    await handle.clear()
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.done()
        await handle.clear()
        await tab.until("cf_agent_chat_clear")
        await tab.send({"type": "cf_agent_chat_clear"})
        async with asyncio.timeout(10):
            while len(cleared) < 3:
                await asyncio.sleep(0.01)
    assert cleared == [ref_of(agent, "room")] * 3
    assert await handle.messages() == []


async def test_an_error_of_the_clear_hook_is_logged_and_nothing_else(
    doors: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_clear(self: Any, conversation: Any) -> None:
        raise LookupError("mine")

    script = Script()
    await doors(script.agent(on_clear=on_clear)).clear()
    assert "on_clear" in caplog.text and "mine" in caplog.text


async def test_waiting_for_what_nobody_runs_ends_in_time(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    assert await handle.wait_until_idle(timeout=1) is None
    async with Tab(agent) as tab:
        await tab.ask("x")
        await script.begun.wait()
        with pytest.raises(TimeoutError, match=r"0\.2 s"):
            await handle.wait_until_idle(timeout=0.2)
        with pytest.raises(TimeoutError):
            await handle.save_messages("y", timeout=0.2)
        with pytest.raises(TimeoutError):
            await handle.save_messages(lambda current: "z", timeout=0.2)
        # A function that nobody calls any more holds nothing up.
        await eventually_queued(agent, 1)
        script.end()
        script.end()
        await handle.wait_until_idle(timeout=10)


async def test_a_wrong_message_is_named_and_nothing_is_stored(doors: Any) -> None:
    script, agent = answering()
    handle = doors(agent)
    for wrong in [{"id": "x"}, [user_message("a", "u1"), "b"], [{"role": "user"}]]:
        for call in (handle.persist_messages, handle.submit, handle.save_messages):
            with pytest.raises(ValueError, match="a message is a dict with an id"):
                await call(wrong)
    with pytest.raises(ValueError, match="request id"):
        await handle.submit("x", request_id="")
    assert await door.run(status.at_rest, ref_of(agent, "room")) is not None
    assert await handle.messages() == []
    assert script.turns == []


async def test_the_owner_is_the_user_s_or_as_the_hook_says(doors: Any) -> None:
    class User:
        is_authenticated = True
        pk = 7

    def shared(self: Any, user: Any, name: str) -> str | None:
        return "" if name == "room" else None

    script, agent = answering()
    await doors(agent, User()).persist_messages("mine")
    assert len(await stored(agent, owner="u:7")) == 1
    common = script.agent(conversation_owner=shared)
    await doors(common, None).persist_messages("ours")
    assert len(await stored(common, owner="")) == 1
    with pytest.raises(ValueError, match="is nobody's"):
        await doors(agent, None).messages()


async def test_a_plain_view_of_an_async_server_may_use_the_sync_doors() -> None:
    script, agent = answering("hi")
    register(agent.agent_name, agent)
    get_runner()

    def view() -> Any:
        try:
            handle = agent.conversation("room", owner=OWNER)
            handle.persist_messages("first")
            handle.submit("second")
            handle.wait_until_idle(timeout=TIMEOUT)
            return handle.clear(), handle.messages()
        finally:
            connections.close_all()

    assert await sync_to_async(view)() == (None, [])
    assert script.turns[0].text == "second"


async def test_an_async_door_through_the_bridge_leaves_the_turn_to_others() -> None:
    script, agent = answering("hi")
    register(agent.agent_name, agent)
    get_runner()

    def view() -> Any:
        try:
            handle = agent.conversation("room", owner=OWNER)
            return async_to_sync(handle.asave_messages)("x", timeout=TIMEOUT)
        finally:
            connections.close_all()

    assert (await asyncio.to_thread(view)).status == "completed"
    assert len(script.turns) == 1


async def test_a_sync_door_on_a_running_loop_names_its_twin() -> None:
    _, agent = answering()
    handle = agent.conversation("room", owner=OWNER)
    calls: dict[str, tuple[Any, ...]] = {
        "messages": (),
        "persist_messages": ("x",),
        "submit": ("x",),
        "save_messages": ("x",),
        "continue_last_turn": (),
        "turn": ("q1",),
        "stop": (),
        "clear": (),
        "wait_until_idle": (),
    }
    for name, args in calls.items():
        with pytest.raises(StreamUsageError, match=f"await a{name}"):
            getattr(handle, name)(*args)
    assert await eventually_stored(agent, 0) == []
