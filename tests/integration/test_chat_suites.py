"""What the official server's suites ask for and no other test here holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from channels.routing import URLRouter
from django.urls import path

from django_streams.chat import Debounce
from django_streams.turns import door, orders, queue, recovery
from django_streams.turns.agents import register
from django_streams.turns.orders import Order
from django_streams.turns.policy import CONTINUE, Concurrency
from django_streams.turns.replay import turn_streams

from .chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    RESUMING,
    Script,
    Tab,
    message_text,
    quiet,
    ref_of,
    responses,
    stored,
    user_message,
)
from .test_chat_hooks import Told
from .test_chat_tools import (
    TOOLS,
    UPDATED,
    approval,
    asked,
    call,
    continued,
    parts,
    result,
    said,
)

pytestmark = pytest.mark.usefixtures("chat")


async def test_results_of_two_tabs_at_the_same_time_are_both_kept() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await asked(one, script, call("t1"), call("t2"))
        await two.done()
        await asyncio.gather(
            one.send(result("t1", output=1)), two.send(result("t2", output=2))
        )
        for tab in (one, two):
            for _ in range(2):
                await tab.until(UPDATED)
        script.say("both")
        script.end()
        request_id = (await one.until(RESUMING))["id"]
        await one.ack(request_id)
        frames = responses(await one.done(request_id), request_id)
    # Every frame of it has the one id, which is not that of the request.
    assert request_id != "q1"
    assert all(frame["continuation"] for frame in frames)
    assert len(script.turns) == 2
    found = parts((await stored(agent))[1])
    assert [found[c]["output"] for c in ("t1", "t2")] == [1, 2]


async def test_answers_in_quick_succession_during_a_turn_are_one_continuation() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call("t1"), call("t2"), call("t3"))
        await tab.ask("x", clientTools=TOOLS)
        await tab.until(RESPONSE, seq=3)
        for call_id in ("t1", "t2", "t3"):
            await tab.send(result(call_id))
        script.end()
        await tab.done()
        assert said(await continued(tab, script, "once")) == "once"
        assert (await tab.probe())["type"] == NONE
    assert len(script.turns) == 2


async def test_a_clear_during_a_turn_drops_the_continuation_that_was_asked_for() -> (
    None
):
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say(call())
        await tab.ask("x", clientTools=TOOLS)
        await tab.until(RESPONSE, seq=1)
        await tab.send(result())
        await tab.send({"type": "cf_agent_chat_clear"})
        await tab.done()
        assert (await tab.probe("p2"))["type"] == NONE
        await asked_anew(tab, script)
    assert [turn.continuation for turn in script.turns] == [False, False]
    assert [message_text(m) for m in await stored(agent)] == ["y", "anew"]


async def asked_anew(tab: Tab, script: Script) -> None:
    script.say("anew")
    script.end()
    await tab.ask("y", "q2")
    await tab.done("q2")


async def test_tools_and_keys_of_a_client_are_forgotten_by_a_clear() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, "a")
        await tab.send({"type": "cf_agent_chat_clear"})
        answer = {"id": "a1", "role": "assistant", "parts": []}
        handle = agent.conversation("room", owner="a:v1")
        await tab.probe()
        await handle.apersist_messages([user_message("x", "u1"), answer])
        script.say("on")
        script.end()
        await handle.acontinue_last_turn()
    assert script.turns[0].client_tools == TOOLS
    assert (script.turns[1].client_tools, script.turns[1].body) == (None, {})


async def test_a_request_without_tools_takes_those_of_the_last_one_away() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, "a")
        script.say(call())
        script.end()
        await tab.ask("y", "q2", *(await stored(agent)))
        await tab.done("q2")
        await tab.send(result())
        await continued(tab, script, "on")
    assert [turn.client_tools for turn in script.turns] == [TOOLS, None, None]
    assert [turn.body for turn in script.turns] == [{"custom": "c"}, {}, {}]


async def test_who_waits_for_rest_waits_for_a_continuation_that_is_queued() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await asked(tab, script, call())
        await tab.send(result())
        await tab.until(UPDATED)
        resting = asyncio.create_task(
            agent.conversation("room", owner="a:v1").await_until_idle()
        )
        frames = await continued(tab, script, "on")
        state = await resting
    assert state is not None
    assert (state.request_id, state.status) == (frames[-1]["id"], "completed")


@pytest.mark.parametrize("mode", ["queue", "latest", "merge", "drop", Debounce(0.05)])
async def test_in_each_mode_the_hook_is_told_once_of_what_ran(
    mode: Concurrency,
) -> None:
    script, told = Script(), Told()
    agent = told.agent(script, message_concurrency=mode)
    ran = {"queue": ["q1", "q2", "q3"], "drop": ["q1"]}.get(str(mode), ["q1", "q3"])
    async with Tab(agent) as tab:
        await tab.ask("one")
        script.say("first")
        await tab.until(RESPONSE)
        await tab.ask("two", "q2")
        await tab.ask("three", "q3")
        # Answered in order: both messages have come when this is.
        await tab.send({"type": "rpc", "id": "r1", "method": "none", "args": []})
        await tab.until("rpc")
        for _ in ran:
            script.end()
            script.say("next")
        while len({f["id"] for f in tab.kept if f.get("done") and "body" in f}) < 3:
            await tab.next()
    await quiet()
    assert [one.request_id for one in told.results] == ran
    assert {one.status for one in told.results} == {"completed"}
    assert not any(one.continuation for one in told.results)


@pytest.mark.parametrize("before", [True, False])
async def test_what_a_killed_continuation_said_is_part_of_its_message(
    before: bool,
) -> None:
    agent = Script().agent(on_interrupted="fail")
    tool = {"type": "tool-loc", "toolCallId": "t1", "state": "output-available"}
    called = tool | {"input": {}, "output": 1}
    answer = {
        "id": "a1",
        "role": "assistant",
        "metadata": {"old": 1, "both": 1},
        "parts": [called],
    }
    handle = agent.conversation("room", owner="a:v1")
    await handle.apersist_messages([user_message("x", "u1"), answer])
    ref = ref_of(agent, "room")
    placed = await door.run(orders.place, ref, Order(request_id="c1", trigger=CONTINUE))
    pk = placed.conversation_pk
    turn = await door.run(queue.claim, pk, message_id="a2", lease=0.0)
    assert turn is not None
    writer = await turn_streams(door.alias()).aopen(
        f"s-{agent.agent_name}", tag="c1", lease=0.01, on_lapse="wait"
    )
    await door.run(queue.begin, turn, ref.wake_key, stream=writer.stream_id)
    metadata = {"new": 1, "both": 2}
    await writer.aextend(
        [
            {"type": "start", "messageMetadata": metadata},
            {"type": "text-start", "id": "c1"},
            {"type": "text-delta", "id": "c1", "delta": "so far"},
        ]
    )
    register(agent.agent_name, agent)
    if before:
        assert await recovery.sweep(ref)
    async with Tab(agent) as tab:
        # Who comes first ends it; who accepts it twice changes nothing.
        for _ in range(2):
            assert (await tab.probe())["type"] == RESUMING
            await tab.ack("c1")
            frames = responses(await tab.done("c1"), "c1")
            assert all(frame["continuation"] for frame in frames)
            assert [frame.get("replay") for frame in frames] == [True] * 3 + [None]
            assert frames[-1]["error"] is True
    _, kept = await stored(agent)
    assert kept["id"] == "a1"
    assert kept["parts"][0] == called
    assert message_text(kept) == "so far"
    assert kept["metadata"] == {"old": 1, "both": 2, "new": 1}


async def test_a_visitor_after_an_error_without_a_word_gets_the_error_alone() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say(RuntimeError("no"))
        (told,) = responses(await tab.done())
    async with Tab(agent) as tab:
        assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        (frame,) = responses(await tab.done())
        assert frame == told
        assert frame["error"] and "replay" not in frame


async def test_a_socket_is_usable_after_an_error_and_the_others_see_what_follows() -> (
    None
):
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await one.ask("x")
        script.say("half", {"type": "error", "errorText": "boom"})
        await one.until(RESPONSE, done=True)
        await two.until(RESPONSE, done=True, outcome="error")
        assert [f["type"] for f in two.kept].count(MESSAGES) >= 2
        await asked_anew(one, script)
        frames = await two.done("q2")
    assert "error" not in frames[-1] and "outcome" not in frames[-1]


async def test_transient_data_is_shown_to_all_and_not_stored() -> None:
    script = Script()
    agent = script.agent()
    passing = {"type": "data-progress", "data": 7, "transient": True}
    lasting = {"type": "data-chart", "id": "c", "data": [1]}
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await one.ask("x")
        script.say(passing, lasting)
        script.end()
        for tab in (one, two):
            said = [f["body"] for f in responses(await tab.done())]
            assert any('"data-progress"' in body for body in said)
            assert any('"data-chart"' in body for body in said)
    _, answer = await stored(agent)
    kinds = [part["type"] for part in answer["parts"]]
    assert "data-chart" in kinds
    assert "data-progress" not in kinds


async def test_a_hook_may_ask_for_the_next_turn_and_wait_for_its_end() -> None:
    script = Script()
    ended: list[str] = []

    async def on_chat_response(self: Any, result: Any) -> None:
        if len(script.turns) < 4:
            script.say("more")
            script.end()
            state = await agent.conversation("room", owner="a:v1").asave_messages("on")
            ended.append(state.status)

    agent = script.agent(on_chat_response=on_chat_response)
    async with Tab(agent) as tab:
        await asked(tab, script, "first")
        while len(script.turns) < 4:
            await tab.until(RESPONSE, done=True)
        await asked_anew(tab, script)
    await quiet()
    assert ended == ["completed"] * 3
    assert len(await stored(agent)) == 10


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_without_a_wish_to_go_on_runs_nothing(approved: bool) -> None:
    script = Script()
    agent = script.agent()
    asks = {"type": "tool-approval-request", "approvalId": "ap1", "toolCallId": "t1"}
    async with Tab(agent) as tab:
        await asked(tab, script, call(), asks)
        before = await stored(agent)
        await tab.send(approval(approved, autoContinue=False))
        await tab.until(UPDATED)
        assert (await tab.probe())["type"] == NONE
    assert len(script.turns) == 1
    assert len((await stored(agent))[1]["parts"]) == len(before[1]["parts"])


async def test_an_agent_may_stand_at_an_address_of_the_project_s_own() -> None:
    agent = Script().agent()
    tab = Tab(agent, path="/user/me")
    tab._app = URLRouter([path("user/me", agent.as_asgi(), {"name": "room"})])  # type: ignore[arg-type,list-item]
    async with tab, Tab(agent) as usual:
        identity, _ = await tab.ready()
        assert [identity[key] for key in ("agent", "name")] == [
            agent.agent_name,
            "room",
        ]
        await usual.ready()
        await tab.send({"type": "cf_agent_state", "state": 1})
        assert await usual.next() == {"type": "cf_agent_state", "state": 1}
