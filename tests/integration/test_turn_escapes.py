"""What a handler does must end its own turn only, whatever it does."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams.chat import tool
from django_streams.turns import agents, conversations, door, recovery, runner
from django_streams.turns.records import TurnStatus
from django_streams.turns.toolbox import CUT_TEXT

from .chatting import (
    TIMEOUT,
    Script,
    Tab,
    make_agent,
    message_text,
    ref_of,
    stored,
    turn_of,
)
from .test_turn_worker import ended, eventually_streaming, submit, working

pytestmark = pytest.mark.usefixtures("chat")


async def in_generator(self: Any, turn: Any) -> AsyncIterator[str]:
    yield "so far"
    sys.exit(3)


async def in_coroutine(self: Any, turn: Any) -> str:
    raise SystemExit


def in_thread(self: Any, turn: Any) -> str:
    sys.exit("a library")


@pytest.mark.parametrize("runner", ["inprocess", "worker"])
@pytest.mark.parametrize("handler", [in_generator, in_coroutine, in_thread])
async def test_a_handler_that_exits_fails_and_nothing_else_ends(
    handler: Any, runner: str
) -> None:
    script = Script()
    bad = make_agent(handler, runner=runner)
    good = script.agent(runner=runner)
    async with working(bad, good), Tab(good, "good") as other, Tab(bad) as tab:
        await other.ask("x")
        await script.begun.wait()
        await tab.ask("x")
        last = (await tab.done())[-1]
        assert last["error"] and "exit" not in last["body"]
        script.say("goes on")
        script.end()
        await other.done()
    turn = await turn_of(bad)
    assert (turn.status, turn.attempt) == (TurnStatus.ERRORED, 1)


async def test_a_hook_that_exits_ends_nothing() -> None:
    def on_chat_response(self: Any, result: Any) -> None:
        sys.exit()

    script = Script()
    agent = script.agent(on_chat_response=on_chat_response)
    async with Tab(agent) as tab:
        for request_id in ("q1", "q2"):
            await tab.ask("x", request_id)
            script.say("yes")
            script.end()
            await tab.done(request_id)


async def test_a_handler_that_blocks_between_words_lets_the_loop_go_on() -> None:
    turns_of_the_loop: list[int] = []

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        count = 0

        def tick() -> None:
            nonlocal count
            count += 1
            asyncio.get_running_loop().call_soon(tick)

        tick()
        for _ in range(8):
            time.sleep(0.001)  # noqa: ASYNC251
            turns_of_the_loop.append(count)
            yield "word "

    async with Tab(make_agent(on_chat_message)) as tab:
        await tab.ask("x")
        await tab.done()
    assert sorted(set(turns_of_the_loop)) == turns_of_the_loop


async def test_what_a_worker_gives_back_is_not_run_again_by_an_agent_that_fails() -> (
    None
):
    script = Script()
    agent = script.agent(runner="worker", on_interrupted="fail")
    ref = ref_of(agent, "room")
    await submit(ref)
    async with working(agent):
        script.say("half of ")
        await script.begun.wait()
        await eventually_streaming(agent)
    async with working(agent):
        turn = await ended(ref)
    assert (turn.status, turn.attempt) == (TurnStatus.ERRORED, 1)
    assert message_text((await stored(agent))[1]) == "half of "


async def test_only_what_a_worker_gives_back_costs_no_attempt() -> None:
    script = Script()
    agent = script.agent(runner="worker", max_recovery_attempts=1)
    make = agents.find(agent.agent_name) or agent
    ref = ref_of(agent, "room")
    agents.register(agent.agent_name, agent)
    await submit(ref)
    pk = await door.run(conversations.find, ref)
    run = await runner.claim(ref, pk or 0, make)
    for gives_back in (True, True, False):
        assert run is not None
        run.gives_back = gives_back
        task = asyncio.create_task(run.run())
        await script.begun.wait()
        script.begun.clear()
        task.cancel()
        await asyncio.wait({task})
        assert await recovery.sweep(ref)
        run = await recovery.take_up(ref, make)
    assert run is not None
    task = asyncio.create_task(run.run())
    await script.begun.wait()
    task.cancel()
    await asyncio.wait({task})
    await recovery.sweep(ref)
    turn = await turn_of(agent)
    assert (turn.status, turn.attempt, turn.handovers) == (TurnStatus.ERRORED, 4, 2)


@pytest.mark.parametrize("plain", [True, False])
async def test_a_call_that_a_stop_cut_short_is_not_made_again(plain: bool) -> None:
    made, going, release = [], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def pay_plainly(to: str) -> str:
        made.append(to)
        loop.call_soon_threadsafe(going.set)
        release.wait(TIMEOUT)
        return "paid"

    async def pay_async(to: str) -> str:
        made.append(to)
        going.set()
        await asyncio.Event().wait()
        return "paid"

    pay = tool(name="pay", needs_approval=True)(pay_plainly if plain else pay_async)
    script = Script()
    agent = script.agent(tools=[pay])
    call = {"type": "tool-input-available", "toolCallId": "t1", "toolName": "pay"}
    async with Tab(agent) as tab:
        script.say(call | {"input": {"to": "Ann"}})
        script.end()
        await tab.ask("x")
        await tab.done()
        await tab.send(
            {"type": "cf_agent_tool_approval", "toolCallId": "t1", "approved": True}
            | {"autoContinue": True}
        )
        await going.wait()
        handle = agent.conversation("room", owner="a:v1")
        await handle.astop()
        await handle.await_until_idle()
        release.set()
        script.end()
        await handle.acontinue_last_turn()
        await handle.await_until_idle()
    [part] = [p for p in (await stored(agent))[1]["parts"] if "toolCallId" in p]
    assert (part["state"], part["errorText"]) == ("output-error", CUT_TEXT)
    assert made == ["Ann"]
