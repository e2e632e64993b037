"""When a reply goes on after its tool calls were answered, and when it does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from django_streams.models import Message
from django_streams.turns import door
from django_streams.turns.records import TurnStatus

from .chatting import (
    MESSAGES,
    NONE,
    PENDING,
    RESPONSE,
    RESUMING,
    Frame,
    Script,
    Tab,
    eventually,
    message_text,
    responses,
    stored,
    text_of,
    turn_of,
)
from .test_chat_tools import (
    TOOLS,
    UPDATED,
    approval,
    asked,
    awaited,
    call,
    continued,
    parts,
    result,
    said,
    shown,
)

pytestmark = pytest.mark.usefixtures("chat")

BARE = {"type": NONE}


async def half_answered(tab: Tab, script: Script) -> str:
    """A reply has two calls, one of which *tab* has answered; the id of the
    continuation that waits for the other."""
    await asked(tab, script, call("t1"), call("t2"))
    await tab.send(result("t1"))
    await tab.until(UPDATED)
    waits = await tab.probe()
    assert waits["type"] == PENDING
    # Made by the server; a client's are shorter.
    assert len(waits["id"]) == 21
    return str(waits["id"])


@pytest.mark.parametrize(
    ("reason", "goes_on"), [("stop", False), ("tool-calls", True), (None, True)]
)
async def test_a_model_that_said_all_is_not_asked_again(
    reason: str | None, goes_on: bool
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call(), "Meanwhile.")
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "text-delta")
        await tab.send(result())
        await tab.probe()
        await tab.ack("q1")
        script.say({"type": "finish"} | ({"finishReason": reason} if reason else {}))
        script.end()
        await tab.done()
        if goes_on:
            assert said(await continued(tab, script, "on")) == "on"
        else:
            assert await tab.until(NONE) == BARE
            assert (await tab.probe("p2"))["type"] == NONE
    assert len(script.turns) == 1 + goes_on
    # Answered is answered, whatever comes of it.
    assert parts((await stored(agent))[1])["t1"]["output"] == {"city": "X"}
    assert await awaited(agent) is None


async def test_a_model_that_said_all_is_asked_again_when_other_calls_wait() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call("t1"), call("t2"))
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "tool-input-available")
        await shown(tab, "tool-input-available")
        await tab.send(result("t1"))
        await tab.probe()
        await tab.ack("q1")
        script.say({"type": "finish", "finishReason": "stop"})
        script.end()
        await tab.done()
        await tab.send(result("t2"))
        assert said(await continued(tab, script, "on")) == "on"


Stop = Callable[[Any, Tab, str], Awaitable[Any]]


async def by_frame(agent: Any, tab: Tab, request_id: str) -> None:
    await tab.cancel(request_id)


async def by_handle(agent: Any, tab: Tab, request_id: str) -> None:
    await agent.conversation("room", owner="a:v1").astop()


async def by_handle_and_id(agent: Any, tab: Tab, request_id: str) -> None:
    await agent.conversation("room", owner="a:v1").astop(request_id)


@pytest.mark.parametrize("stop", [by_frame, by_handle, by_handle_and_id])
async def test_a_continuation_that_waits_for_answers_can_be_stopped_by_anybody(
    stop: Stop,
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        request_id = await half_answered(tab, script)
        await stop(agent, other, request_id)
        assert await tab.until(NONE) == BARE
        end = {"type": RESPONSE, "id": request_id, "body": "", "done": True}
        end |= {"continuation": True, "outcome": "aborted"}
        assert await tab.next() == end
        assert (await other.done(request_id))[-1] == end
        # It has forgotten about it: the last answer alone asks for nothing.
        await tab.send(result("t2", autoContinue=False))
        await tab.until(UPDATED)
        assert (await tab.probe("p2"))["type"] == NONE
        await stop(agent, other, request_id)
        assert await tab.silent()
    assert len(script.turns) == 1
    assert await awaited(agent) is None


async def test_another_answer_asks_for_a_continuation_of_its_own_after_a_stop() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        request_id = await half_answered(tab, script)
        await tab.cancel(request_id)
        await tab.until(NONE)
        await tab.send(result("t2"))
        frames = await continued(tab, script, "on")
    assert frames[-1]["id"] != request_id


async def test_a_stop_of_another_request_leaves_it_waiting() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        request_id = await half_answered(tab, script)
        await tab.cancel("another")
        assert (await tab.probe("p2"))["id"] == request_id


async def test_a_turn_that_is_stopped_is_not_gone_on_with() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call(), "and")
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "text-delta")
        await tab.send(result())
        await tab.probe()
        await tab.ack("q1")
        await tab.cancel()
        assert (await tab.done())[-1]["outcome"] == "aborted"
        assert await tab.until(NONE) == BARE
    assert len(script.turns) == 1
    assert parts((await stored(agent))[1])["t1"]["output"] == {"city": "X"}


async def begin_continuation(tab: Tab, script: Script, *items: Any) -> str:
    """Answer the first call, accept the offer and have the reply say *items*."""
    await tab.send(result("t1"))
    request_id = str((await tab.until(RESUMING))["id"])
    await tab.ack(request_id)
    await tab.until(RESPONSE, id=request_id, replayComplete=True)
    script.say(*items)
    return request_id


async def test_answers_while_a_continuation_runs_are_one_further_continuation() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"))
        first = await begin_continuation(tab, script, call("t2"), call("t3"))
        await shown(tab, "tool-input-available")
        await shown(tab, "tool-input-available")
        await tab.send(result("t2"))
        await tab.send(result("t3"))
        script.end()
        await tab.done(first)
        frames = await continued(tab, script, "whole")
        assert frames[-1]["id"] != first
        assert await tab.silent()
    assert len(script.turns) == 3
    (_, answer) = await stored(agent)
    assert [p["state"] for p in parts(answer).values()] == ["output-available"] * 3


async def test_a_continuation_that_fails_is_not_gone_on_with() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"))
        first = await begin_continuation(tab, script, call("t2"))
        await shown(tab, "tool-input-available")
        await tab.send(result("t2"))
        await tab.probe()
        await tab.ack(first)
        script.say(RuntimeError("no"))
        assert (await tab.done(first))[-1]["error"] is True
        assert await tab.until(NONE) == BARE
        # And nothing is stuck.
        await tab.ask("y", "q2", *(await stored(agent)))
        script.say("fine")
        script.end()
        assert said(await tab.done("q2")) == "fine"
    assert len(script.turns) == 3


async def test_a_first_reply_that_fails_goes_on_with_what_was_answered() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call())
        await tab.ask("x", clientTools=TOOLS)
        await shown(tab, "tool-input-available")
        await tab.send(result())
        script.say(RuntimeError("no"))
        await tab.done()
        assert said(await continued(tab, script, "all the same")) == "all the same"


async def test_a_continuation_that_finds_no_message_lets_go_who_waits() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"))
        await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS)
        await eventually(lambda: len(script.turns) == 2)
        await tab.send(result("t1"))
        await tab.until(UPDATED)
        await tab.probe()
        rows: Any = Message.objects.using(door.alias()).filter(role="assistant")
        await door.run(rows.delete)
        await tab.ack("q2")
        script.end()
        await tab.done("q2")
        assert await tab.until(NONE) == BARE
    assert len(script.turns) == 2


async def test_a_continuation_that_fails_before_it_says_anything_shows_its_error() -> (
    None
):
    script = Script()
    heard: list[Any] = []
    talking = script.agent(on_chat_response=lambda self, result: heard.append(result))

    async def on_chat_message(self: Any, turn: Any) -> Any:
        if turn.continuation:
            raise RuntimeError("no")
        return [call()]

    talking.on_chat_message = on_chat_message  # type: ignore[method-assign]
    async with Tab(talking) as tab, Tab(talking) as other:
        await other.ready()
        await tab.ask("x", clientTools=TOOLS)
        await tab.done()
        await tab.send(result())
        request_id = (await tab.until(RESPONSE, error=True))["id"]
        offer = await tab.next()
        assert offer == {"type": RESUMING, "id": request_id}
        await tab.ack(request_id)
        error = await tab.next()
        for frame in (error, (await other.done(request_id))[-1]):
            assert (frame["error"], frame["done"]) == (True, True)
            assert frame["continuation"] is True
            assert frame["body"].startswith("Internal error")
        await eventually(lambda: len(heard) == 2)
    failed = heard[1]
    assert (failed.status, failed.continuation) == ("error", True)
    assert failed.request_id == request_id
    assert parts(failed.message)["t1"]["output"] == {"city": "X"}
    assert (await turn_of(talking, request_id)).status is TurnStatus.ERRORED


async def test_a_continuation_brings_what_the_client_brought_when_it_answered() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call("t1"), call("t2"))
        script.end()
        await tab.ask("x", clientTools=TOOLS)
        await tab.done()
        await tab.send(result("t1"))
        await tab.until(UPDATED)
        await tab.ask("y", "q2", *(await stored(agent)), custom="later")
        # It leaves no newer reply.
        script.say(RuntimeError("no"))
        await tab.done("q2")
        await continued(tab, script, "on")
    turn = script.turns[-1]
    assert turn.continuation
    assert (turn.body, turn.client_tools) == ({}, TOOLS)


async def test_the_tools_of_an_answer_replace_the_ones_before() -> None:
    script = Script()
    agent = script.agent()
    other = [{"name": "other", "description": "", "parameters": {}}]
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"))
        await tab.send(result("t1", clientTools=other))
        await continued(tab, script, "on")
    assert script.turns[1].client_tools == other


async def test_a_continuation_that_code_has_ordered_keeps_its_body() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call("t1"))
        await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS, custom="c")
        await eventually(lambda: len(script.turns) == 2)
        handle = agent.conversation("room", owner="a:v1")
        going_on = asyncio.create_task(handle.acontinue_last_turn({"of": "code"}))
        await tab.until(MESSAGES)
        while await handle.aturn("q2") is None or not await queued(agent):
            await asyncio.sleep(0.01)
        await tab.send(result("t1"))
        await tab.until(UPDATED)
        script.end()
        script.say("on")
        script.end()
        state = await going_on
    assert state.status == "completed"
    assert [turn.body for turn in script.turns[2:]] == [{"of": "code"}]


async def queued(agent: Any) -> bool:
    from django_streams.models import Turn

    rows: Any = Turn.objects.using(door.alias()).filter(status="queued")
    mine = rows.filter(conversation__agent=agent.agent_name)
    return bool(await door.run(mine.exists))


async def test_who_comes_when_the_one_who_answered_is_gone_resumes_it() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as other:
        await other.ready()
        async with Tab(agent) as tab:
            request_id = await half_answered(tab, script)
            # It is the other's to resume; who only looks on sees it live.
            assert (await other.probe())["type"] == NONE
        async with Tab(agent) as again:
            waits = await again.probe()
            assert (waits["type"], waits["id"]) == (PENDING, request_id)
            await again.send(result("t2", autoContinue=False))
            frames = await continued(again, script, "on")
            assert frames[-1]["id"] == request_id
            seen = await other.done(request_id)
    assert not [f for f in seen if f["type"] == RESUMING]
    assert [f for f in responses(seen, request_id) if f.get("replay")] == []
    assert message_text((await stored(agent))[1]) == "on"


async def test_who_comes_in_the_middle_of_one_whose_owner_has_left_gets_all_of_it() -> (
    None
):
    script = Script()
    agent = script.agent()
    async with Tab(agent) as other:
        await other.ready()
        async with Tab(agent) as tab:
            await asked(tab, script, call("t1"))
            request_id = await begin_continuation(tab, script, "first, ")
            await shown(tab, "text-delta")
        async with Tab(agent) as late:
            offer = await late.probe()
            assert (offer["type"], offer["id"]) == (RESUMING, request_id)
            await late.ack(request_id)
            await late.until(RESPONSE, id=request_id, replayComplete=True)
            replayed = responses(late.kept, request_id)
            assert all(f["replay"] and f["continuation"] for f in replayed)
            script.say("second")
            script.end()
            await late.done(request_id)
            assert text_of(late.kept, request_id) == "first, second"
        assert text_of(await other.done(request_id), request_id) == "first, second"


async def test_who_looks_on_is_not_offered_what_another_has_answered() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await asked(tab, script, call())
        await other.done()
        await tab.send(approval(True))
        frames = await continued(tab, script, "on")
        request_id = frames[-1]["id"]
        theirs: list[Frame] = await other.done(request_id)
    assert not [f for f in theirs if f["type"] == RESUMING]
    assert said(theirs) == "on"


async def test_the_owner_of_two_answers_is_the_one_who_answered_last() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        request_id = await half_answered(tab, script)
        await other.send(result("t2"))
        frames = await continued(other, script, "on")
        assert frames[-1]["id"] == request_id
        # The first one has waited for it too.
        assert (await tab.until(RESUMING))["id"] == request_id
