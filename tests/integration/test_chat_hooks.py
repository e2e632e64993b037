"""The completion hook: once for each turn that began a reply, whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams import PublicError
from django_streams.turns import clock, door, queue, recovery, responses
from django_streams.turns.responses import get_responses

from .chatting import (
    NONE,
    RESPONSE,
    Script,
    Tab,
    eventually,
    make_agent,
    message_text,
    quiet,
    ref_of,
    text_of,
    turn_of,
)
from .leaving import abandoned, accept

pytestmark = pytest.mark.usefixtures("chat")


class Told:
    """What an agent's hook was told."""

    def __init__(self) -> None:
        self.results: list[Any] = []

    def agent(self, script: Script, **members: Any) -> Any:
        told = self

        async def on_chat_response(self: Any, result: Any) -> None:
            told.results.append(result)

        return script.agent(on_chat_response=on_chat_response, **members)

    @property
    def brief(self) -> list[tuple[str, str]]:
        return [(r.status, message_text(r.message)) for r in self.results]


async def test_each_end_is_told_once_with_the_whole_message() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    async with Tab(agent) as tab:
        for number, end in enumerate((None, PublicError("no"), {"type": "error"})):
            await tab.ask("x", f"q{number}")
            script.say("a", "b", end)
            await tab.done(f"q{number}")
        await tab.ask("x", "q3")
        script.say("c")
        await tab.until(RESPONSE, seq=3, id="q3")
        await tab.cancel("q3")
        await tab.done("q3")
    await quiet()
    ab = "ab"
    assert told.brief == [
        ("completed", ab),
        ("error", ab),
        ("error", ab),
        ("aborted", "c"),
    ]


async def test_an_interrupted_turn_is_told_as_an_error() -> None:
    script, told = Script(), Told()
    agent = told.agent(script, on_interrupted="fail")
    await abandoned(agent, "half")
    async with Tab(agent) as tab:
        await tab.ready()
    await quiet()
    assert told.brief == [("error", "half")]
    assert told.results[0].error == "The reply was interrupted."


async def test_a_continued_turn_is_told_once() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await accept(tab)
        script.say("b")
        script.end()
        await tab.done()
    await quiet()
    assert told.brief == [("completed", "ab")]


async def test_a_turn_that_never_began_a_reply_is_not_told() -> None:
    told: list[Any] = []

    async def on_chat_message(self: Any, turn: Any) -> None:
        return None

    async def on_chat_response(self: Any, result: Any) -> None:
        told.append(result)

    agent = make_agent(on_chat_message, on_chat_response=on_chat_response)
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.done()
    await quiet()
    assert not told


async def unheard(agent: Any) -> None:
    """Leave the call of the hook as a process does that died before it."""
    turn = await turn_of(agent)

    def give_back() -> None:
        queue.turns().filter(pk=turn.pk).update(
            respond_by=clock.now(door.alias()), runner=""
        )

    await door.run(give_back)


async def test_the_hook_of_a_process_that_died_before_it_is_called_by_another() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("whole")
        script.end()
        await tab.done()
        await eventually(lambda: told.results)
        await unheard(agent)
        # Whoever follows the conversation notices.
        await eventually(lambda: len(told.results) == 2)
    await quiet()
    first, second = told.results
    assert first == second


async def test_of_many_processes_one_calls_the_hook() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        script.end()
        await tab.done()
    await quiet()
    await unheard(agent)
    turn = await turn_of(agent)
    taken = await asyncio.gather(
        *(door.run(responses.take, turn, f"t{n}", late=True) for n in range(8))
    )
    assert taken.count(True) == 1
    # The answer to it may be lost: asked again under the same token it is known.
    token = f"t{taken.index(True)}"
    assert await door.run(responses.take, turn, token, late=True)


async def test_the_hook_is_its_runners_own_at_first() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        script.end()
        await tab.done()
    await quiet()
    turn = await turn_of(agent)

    def due() -> None:
        soon = clock.after(door.alias(), 60.0)
        queue.turns().filter(pk=turn.pk).update(respond_by=soon, runner="")

    await door.run(due)
    assert not await door.run(responses.take, turn, "other", late=True)
    assert await door.run(responses.take, turn, "its runner", late=False)


async def test_a_hook_that_raises_loses_nothing() -> None:
    async def on_chat_response(self: Any, result: Any) -> None:
        raise RuntimeError("no")

    script = Script()
    agent = script.agent(on_chat_response=on_chat_response)
    async with Tab(agent) as tab:
        for number in range(2):
            await tab.ask("x", f"q{number}")
            script.say("a")
            script.end()
            assert text_of(await tab.done(f"q{number}"), f"q{number}") == "a"
        assert (await tab.probe())["type"] == NONE


async def test_a_hook_may_wait_for_the_next_turn_and_hooks_keep_their_order() -> None:
    order: list[str] = []
    second = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        if turn.request_id == "q2":
            second.set()
        yield "a"

    async def on_chat_response(self: Any, result: Any) -> None:
        if result.request_id == "q1":
            await second.wait()
        order.append(result.request_id)

    agent = make_agent(on_chat_message, on_chat_response=on_chat_response)
    async with Tab(agent) as tab:
        await tab.ask("x", "q1")
        await tab.done("q1")
        await tab.ask("x", "q2")
        await tab.done("q2")
    await quiet()
    assert order == ["q1", "q2"]


async def test_a_hook_is_also_called_where_nobody_follows() -> None:
    script, told = Script(), Told()
    agent = told.agent(script)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        script.end()
        await tab.done()
    await quiet()
    await unheard(agent)
    # As the look of any process does that sweeps.
    while not await recovery.sweep(ref_of(agent, "room")) and not told.results[1:]:
        await get_responses().idle()
    assert told.brief == [("completed", "a")] * 2
