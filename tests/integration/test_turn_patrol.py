"""A process that has served a chat looks after turns, without a lifespan."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from django_streams.turns import backlog, conversations, door, patrol, queue
from django_streams.turns.agents import register
from django_streams.turns.records import TurnStatus

from .chatting import Script, Tab, eventually, ref_of, text_of, turn_of
from .test_turn_worker import ended, submit

pytestmark = pytest.mark.usefixtures("chat")


@pytest.fixture
def often(chat_alias: str, settings: Any) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "SWEEP_INTERVAL": 0.1}


async def test_a_turn_left_behind_is_recovered_though_nobody_follows_it(
    often: None,
) -> None:
    served, left = Script().agent(), Script().agent(on_interrupted="fail")
    register(left.agent_name, left)
    ref = ref_of(left, "room")
    await submit(ref)

    def claim() -> None:
        pk = conversations.find(ref)
        assert pk is not None
        assert queue.claim(pk, message_id="a1", lease=0.0) is not None

    await door.run(claim)
    async with Tab(served) as tab:
        await tab.ready()
        assert (await ended(ref)).status is TurnStatus.ERRORED


async def test_a_turn_that_no_wake_told_of_is_run(
    often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patrol, "_YOUNG", 0.0)
    script, served = Script(), Script().agent()
    agent = script.agent()
    register(agent.agent_name, agent)
    ref = ref_of(agent, "room")
    async with Tab(served) as tab:
        await tab.ready()
        monkeypatch.setattr(door, "on_commit", lambda work: None)
        await submit(ref)
        monkeypatch.undo()
        monkeypatch.setattr(patrol, "_YOUNG", 0.0)
        script.end()
        assert (await ended(ref)).status is TurnStatus.COMPLETED


async def test_a_turn_submitted_in_a_thread_without_a_loop_runs_at_once() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent, "other") as tab:
        await tab.ready()
        # The patrol of this loop looks once an hour: a call brings the turn.
        await submit(ref_of(agent, "room"))
        script.end()
        assert (await ended(ref_of(agent, "room"))).status is TurnStatus.COMPLETED


async def test_turns_of_workers_are_not_run_here(often: None) -> None:
    script, served = Script(), Script().agent()
    agent = script.agent(runner="worker")
    register(agent.agent_name, agent)
    async with Tab(served) as tab:
        await tab.ready()
        await submit(ref_of(agent, "room"))
        await asyncio.sleep(0.5)
        assert (await turn_of(agent)).status is TurnStatus.QUEUED


async def test_an_outage_is_logged_once_and_survived(
    often: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []
    real = backlog.look

    def look(*args: Any, **options: Any) -> backlog.Look:
        calls.append(1)
        if len(calls) < 4:
            raise ValueError("gone")
        return real(*args, **options)

    monkeypatch.setattr(backlog, "look", look)
    async with Tab(Script().agent()) as tab:
        await tab.ready()
        await eventually(lambda: len(calls) > 5)
    assert caplog.text.count("could not look for turns left behind") == 1


async def test_an_idle_process_asks_one_question_an_interval(
    chat_alias: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "SWEEP_INTERVAL": 0.2}
    asked: list[str] = []
    real = backlog.look

    def look(*args: Any, **options: Any) -> backlog.Look:
        def note(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
            asked.append(sql)
            return execute(sql, *rest)

        with connections[chat_alias].execute_wrapper(note):
            return real(*args, **options)

    monkeypatch.setattr(backlog, "look", look)
    async with Tab(Script().agent()) as tab, Tab(Script().agent(), "b") as second:
        await tab.ready()
        await second.ready()
        before = len(asked)
        await asyncio.sleep(1.0)
        assert 1 <= len(asked) - before <= 7


async def test_text_still_reaches_the_tab_while_it_looks(often: None) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a", "b")
        script.end()
        assert text_of(await tab.done()) == "ab"
