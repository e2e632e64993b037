"""The state that the clients of a conversation share."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
from django.db import connections, transaction

from django_streams.exceptions import PublicError, StreamSerializationError
from django_streams.models import Conversation
from django_streams.turns import door, state
from django_streams.turns.agents import register

from .chatting import MESSAGES, NONE, Frame, Script, Tab, ref_of, visitor

pytestmark = pytest.mark.usefixtures("chat")

STATE = "cf_agent_state"
REJECTED = {"type": "cf_agent_state_error", "error": "State update rejected"}


async def greeting(tab: Tab) -> list[Frame]:
    """What comes before the transcript."""
    frames = [await tab.next()]
    while frames[-1]["type"] != MESSAGES:
        frames.append(await tab.next())
    return frames[:-1]


def identity(agent: Any, **members: Any) -> Frame:
    kind = {"type": "cf_agent_identity", "agent": agent.agent_name, "name": "room"}
    return kind | members


async def test_without_a_state_none_is_promised() -> None:
    agent = Script().agent()
    async with Tab(agent) as tab:
        assert await greeting(tab) == [identity(agent)]


async def test_an_initial_state_is_shown_and_makes_no_row() -> None:
    agent = Script().agent(get_initial_state=lambda self: {"count": 0})
    async with Tab(agent) as tab:
        assert await greeting(tab) == [
            identity(agent, stateFollows=True),
            {"type": STATE, "state": {"count": 0}},
        ]
    assert not await door.run(Conversation.objects.using(door.alias()).exists)


@pytest.mark.parametrize("value", [{"count": 1}, None, 0, "\u2028\x00", []])
async def test_a_state_reaches_the_others_and_whoever_comes_later(value: Any) -> None:
    agent = Script().agent(get_initial_state=lambda self: {"count": 0})
    async with Tab(agent) as one, Tab(agent) as two:
        for tab in (one, two):
            await greeting(tab)
        await one.send({"type": STATE, "state": value})
        assert await two.next() == {"type": STATE, "state": value}
        # Who sent it shows it already.
        assert await one.silent()
    async with Tab(agent) as later:
        assert (await greeting(later))[1:] == [{"type": STATE, "state": value}]


async def test_code_may_replace_the_state_for_all() -> None:
    agent = Script().agent()
    async with Tab(agent) as one:
        await one.ready()
        await door.run(state.store, ref_of(agent, "room"), [1])
        assert await one.next() == {"type": STATE, "state": [1]}


async def test_a_handle_reads_what_clients_see_and_shows_them_what_it_stores(
    doors: Any,
) -> None:
    agent = Script().agent(get_initial_state=lambda self: {"count": 0})
    handle = doors(agent)
    assert await handle.get_state() == {"count": 0}
    assert not await door.run(Conversation.objects.using(door.alias()).exists)
    async with Tab(agent) as one, Tab(agent) as two:
        for tab in (one, two):
            await greeting(tab)
        await handle.set_state({"count": 1})
        for tab in (one, two):
            assert await tab.next() == {"type": STATE, "state": {"count": 1}}
        await one.send({"type": STATE, "state": None})
        assert await two.next() == {"type": STATE, "state": None}
    assert await handle.get_state() is None


async def test_a_handle_s_state_is_validated_and_what_is_refused_changes_nothing(
    doors: Any,
) -> None:
    asked: list[Any] = []

    async def validate_state(self: Any, new: Any, user: Any) -> None:
        asked.append(user)
        if new == "bad":
            raise PublicError("not this one")

    class Ann:
        pk = 1
        is_authenticated = True

    agent = Script().agent(
        validate_state=validate_state,
        conversation_owner=lambda self, user, name: "a:v1",
    )
    handle, ann = doors(agent), Ann()
    await handle.set_state([1])
    with pytest.raises(PublicError, match="not this one"):
        await handle.set_state("bad")
    with pytest.raises(StreamSerializationError):
        await handle.set_state({1, 2})
    assert await doors(agent, ann).get_state() == [1]
    await doors(agent, ann).set_state([2])
    assert asked == [None, None, ann]
    assert await handle.get_state() == [2]


async def test_a_handle_s_state_is_part_of_the_caller_s_transaction() -> None:
    agent = Script().agent()
    register(agent.agent_name, agent)
    handle = agent.conversation("room", owner="a:v1")

    def work() -> None:
        try:
            handle.set_state(1)
            with (
                contextlib.suppress(ZeroDivisionError),
                transaction.atomic(using=door.alias()),
            ):
                handle.set_state(2)
                assert handle.get_state() == 2
                raise ZeroDivisionError
        finally:
            connections.close_all()

    async with Tab(agent) as tab:
        await tab.ready()
        await asyncio.to_thread(work)
        assert await tab.next() == {"type": STATE, "state": 1}
    assert await handle.aget_state() == 1


async def test_an_agent_may_refuse_a_state() -> None:
    def validate_state(self: Any, new: Any, user: Any) -> None:
        if "admin" in new:
            raise PublicError("not yours")

    agent = Script().agent(validate_state=validate_state)
    async with Tab(agent) as one, Tab(agent) as two:
        await one.ready()
        await two.ready()
        await one.send({"type": STATE, "state": {"admin": True}})
        assert await one.next() == REJECTED
        await one.send({"type": STATE, "state": {"name": "x"}})
        assert await two.next() == {"type": STATE, "state": {"name": "x"}}


@pytest.mark.parametrize("frame", [{"type": STATE}, {"type": STATE, "state": "deep"}])
async def test_what_is_no_state_changes_nothing(frame: Frame) -> None:
    agent = Script().agent()
    async with Tab(agent) as tab:
        await tab.ready()
        await tab.send(json.dumps(frame).replace('"deep"', "[" * 600 + "]" * 600))
        assert (await tab.probe())["type"] == NONE
    assert await door.run(state.load, ref_of(agent, "room")) is None


async def test_a_reader_s_state_is_not_taken(settings: Any) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {
        "ACCESS_POLICY": "tests.integration.test_chat_access.ReadOnly"
    }
    agent = Script().agent()
    async with Tab(agent, session=visitor()) as tab:
        await tab.ready()
        await tab.send({"type": STATE, "state": 1})
        assert await tab.next() == {
            "type": "cf_agent_state_error",
            "error": "Connection is readonly",
        }
        await tab.send({"type": "rpc", "id": "r1", "method": "m", "args": []})
        assert (await tab.next())["error"] == "Not allowed."


async def test_a_hook_that_fails_costs_the_state_and_nothing_else() -> None:
    def get_initial_state(self: Any) -> Any:
        raise RuntimeError("no")

    agent = Script().agent(get_initial_state=get_initial_state)
    async with Tab(agent) as tab:
        assert await greeting(tab) == [identity(agent)]
