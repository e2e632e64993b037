"""A turn does not run on calls that nobody will ever answer."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.messages.repair import INTERRUPTED_TEXT, NOT_RUN_TEXT

from .chatting import Script, Tab, eventually, stored
from .test_chat_tools import TOOLS, UPDATED, approval
from .test_chat_tools import call as called

pytestmark = pytest.mark.usefixtures("chat_alias")

Part = dict[str, Any]


def call(name: str, state: str, **members: Any) -> Part:
    part = {"type": f"tool-{name}", "toolCallId": name, "state": state, "input": {}}
    return part | members


def left_over(*parts: Part) -> dict[str, Any]:
    return {"id": "a0", "role": "assistant", "parts": list(parts)}


async def test_an_interrupted_call_is_ended_before_a_turn_and_all_are_told() -> None:
    script = Script()
    agent = script.agent()
    ended = call("server", "output-error", errorText=INTERRUPTED_TEXT)
    async with Tab(agent) as tab:
        await tab.ask("x", "q1", left_over(call("server", "input-available")))
        await script.begun.wait()
        assert (await stored(agent))[0] == left_over(ended)
        assert script.turns[0].messages[0] == left_over(ended)
        while True:
            # Also who asked, for it holds the call as it was.
            frame = await tab.next()
            if left_over(ended) in frame.get("messages", ()):
                break
        script.end()
        await tab.done("q1")


async def test_calls_that_a_client_may_still_answer_are_left_alone() -> None:
    script = Script()
    agent = script.agent()
    script.say("on")
    script.end()
    waiting = left_over(
        call("pay", "approval-requested", approval={"id": "p"}),
        call("done", "output-available", output=1),
    )
    async with Tab(agent) as tab:
        await tab.ask("x", "q1", waiting)
        await tab.done("q1")
        assert (await stored(agent))[0] == waiting
        assert script.turns[0].messages[0] == waiting


@pytest.mark.parametrize("waits", [True, False])
async def test_an_allowed_call_is_left_to_the_continuation_that_waits_to_run_it(
    waits: bool,
) -> None:
    script = Script()
    agent = script.agent()
    asks = {"type": "tool-approval-request", "approvalId": "p", "toolCallId": "t1"}
    async with Tab(agent) as tab:
        script.say(called("t1", "pay"), asks, called("t2"))
        script.end()
        await tab.ask("x", "q1", clientTools=TOOLS)
        await tab.done("q1")
        await tab.send(approval(True, autoContinue=waits))
        await tab.until(UPDATED)
        await tab.ask("y", "q2", *(await stored(agent)), clientTools=TOOLS)
        await eventually(lambda: len(script.turns) == 2)
        parts = {p.get("toolCallId"): p for p in script.turns[1].messages[1]["parts"]}
        assert parts["t2"]["state"] == "input-available"
        if waits:
            assert parts["t1"]["state"] == "approval-responded"
        else:
            assert parts["t1"]["errorText"] == NOT_RUN_TEXT
        script.end()
        await tab.done("q2")
        script.end()
