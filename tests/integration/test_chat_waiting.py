"""A continuation that waits for answers ends with the reply whose calls they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from .chatting import (
    NONE,
    PENDING,
    RESPONSE,
    Script,
    Tab,
    message_text,
    stored,
    user_message,
)
from .test_chat_continuations import BARE, half_answered
from .test_chat_tools import (
    TOOLS,
    UPDATED,
    awaited,
    call,
    continued,
    parts,
    result,
    said,
    shown,
)

pytestmark = pytest.mark.usefixtures("chat")


async def by_edit(tab: Tab, agent: Any) -> None:
    """Ask the question of a half answered reply in other words."""
    edited = user_message("better", "u-q1")
    await tab.submit([edited], "q2", clientTools=TOOLS)


async def by_regenerating(tab: Tab, agent: Any) -> None:
    question = (await stored(agent))[0]
    again = "regenerate-message"
    await tab.submit([question], "q2", trigger=again, clientTools=TOOLS)


async def by_message(tab: Tab, agent: Any) -> None:
    await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS)


@pytest.mark.parametrize("go_on", [by_edit, by_regenerating, by_message])
async def test_a_continuation_that_waits_ends_when_its_reply_is_not_the_newest(
    go_on: Callable[[Tab, Any], Awaitable[None]],
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        request_id = await half_answered(tab, script)
        await go_on(tab, agent)
        script.say(call("t3"), call("t4"))
        script.end()
        await tab.done("q2")
        assert await tab.until(NONE) == BARE
        assert (await tab.probe("p2"))["type"] == NONE
        assert await tab.silent()
        assert len(script.turns) == 2
        newest = parts((await stored(agent))[-1])
        assert [p["state"] for p in newest.values()] == ["input-available"] * 2
        # The new reply goes on by its own answers, and by all of them.
        await tab.send(result("t3"))
        await tab.until(UPDATED)
        waits = await tab.probe("p3")
        assert waits["type"] == PENDING and waits["id"] != request_id
        await tab.send(result("t4"))
        assert said(await continued(tab, script, "on")) == "on"
    assert len(script.turns) == 3
    assert await awaited(agent) is None


async def test_an_answer_to_a_newer_reply_ends_the_continuation_before() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        request_id = await half_answered(tab, script)
        await by_message(tab, agent)
        script.say(call("t3"))
        while (await other.until(RESPONSE, done=False))["id"] != "q2":
            pass
        await shown(other, "tool-input-available")
        await other.send(result("t3"))
        assert await tab.until(NONE) == BARE
        script.end()
        frames = await continued(other, script, "on")
        assert frames[-1]["id"] != request_id and said(frames) == "on"
    assert len(script.turns) == 3
    newest = (await stored(agent))[-1]
    assert list(parts(newest)) == ["t3"] and message_text(newest) == "on"
