"""The examples of the protocol's page, sent to an agent and answered by it.

What a client sends is taken from the page as it stands there, and an exchange
has to bring the server's frames as they stand there. The last test holds that no
example is left out.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from django_streams.chat import callable as client_may_call
from django_streams.exceptions import PublicError
from django_streams.turns import recovery
from tests.pages import CLIENT, SERVER, example, examples

from .chatting import (
    MESSAGES,
    NONE,
    PENDING,
    RESPONSE,
    RESUMING,
    Frame,
    Script,
    Tab,
    make_agent,
    message_text,
    ref_of,
    stored,
    visitor,
)
from .leaving import abandoned, accept

STATE: Final = "cf_agent_state"
ERROR: Final = "cf_agent_state_error"
IDENTITY: Final = "cf_agent_identity"
UPDATED: Final = "cf_agent_message_updated"

CONNECT, RESUME, REPLY, OTHERS, CALLS = (
    f"{SERVER}: {section}"
    for section in (
        "at connect",
        "the resume handshake",
        "a reply",
        "to the others",
        "state and calls",
    )
)

ASK = example(CLIENT, "cf_agent_use_chat_request")
PROBE = example(CLIENT, "cf_agent_stream_resume_request")
ACK = example(CLIENT, "cf_agent_stream_resume_ack")
CANCEL = example(CLIENT, "cf_agent_chat_request_cancel")
CLEAR = example(CLIENT, "cf_agent_chat_clear")
SYNC = example(CLIENT, MESSAGES)
RESULT = example(CLIENT, "cf_agent_tool_result")
APPROVAL = example(CLIENT, "cf_agent_tool_approval")
SET_STATE = example(CLIENT, STATE)
CALL = example(CLIENT, "rpc")

_told: list[Any] = []
"""The examples that a test of this module sends or expects."""


def told(*frames: Any) -> Callable[[Any], Any]:
    """Say which examples a test is about."""
    _told.extend(frames)
    return pytest.mark.usefixtures("chat")


MADE_UP: Final = (
    (r"reference [0-9a-f]{8}", "reference 1f2e3d4c"),
    (r'"agent": "agent-[0-9a-f]{8}"', '"agent": "support-agent"'),
)


def usual(frame: Frame) -> Frame:
    """A frame with the page's words for what is another one each time."""
    text = json.dumps(frame)
    for pattern, words in MADE_UP:
        text = re.sub(pattern, words, text)
    return dict(json.loads(text))


async def brings(tab: Tab, *expected: Frame) -> None:
    """Wait until *tab* was sent these frames, in this order."""
    for frame in expected:
        while usual(await tab.next()) != frame:
            pass


STORED = example(CONNECT, MESSAGES)
CHANGED = example(OTHERS, MESSAGES)


@told(SYNC, STORED, CHANGED, example(CONNECT, IDENTITY, stateFollows=None))
async def test_a_synced_transcript_is_shown_to_the_others_and_on_connecting() -> None:
    agent = Script().agent()
    async with Tab(agent, "room1") as one, Tab(agent, "room1") as two:
        assert usual(await one.next()) == example(CONNECT, IDENTITY, stateFollows=None)
        await two.ready()
        await one.send(SYNC)
        await brings(two, CHANGED)
    async with Tab(agent, "room1") as tab:
        await brings(tab, STORED)


LIGHT, DARK = example(CONNECT, STATE), example(OTHERS, STATE)


@told(SET_STATE, LIGHT, DARK, example(CONNECT, IDENTITY, stateFollows=True))
async def test_a_state_follows_the_identity_and_is_shown_when_it_changes() -> None:
    agent = Script().agent(get_initial_state=lambda self: {"theme": "light"})
    async with Tab(agent, "room1") as one, Tab(agent, "room1") as two:
        await brings(one, example(CONNECT, IDENTITY, stateFollows=True), LIGHT)
        await brings(two, LIGHT)
        await one.send(SET_STATE)
        await brings(two, DARK)


REJECTED = example(CALLS, ERROR, error="State update rejected")


@told(SET_STATE, REJECTED)
async def test_a_state_is_rejected() -> None:
    def validate_state(self: Any, state: Any, user: Any) -> None:
        raise PublicError("never")

    async with Tab(Script().agent(validate_state=validate_state)) as tab:
        await tab.send(SET_STATE)
        await brings(tab, REJECTED)


READ_ONLY = example(CALLS, ERROR, error="Connection is readonly")


@told(SET_STATE, READ_ONLY)
async def test_a_reader_is_told_that_it_only_reads(settings: Any) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {
        "ACCESS_POLICY": "tests.integration.test_chat_access.ReadOnly"
    }
    async with Tab(Script().agent(), session=visitor()) as tab:
        await tab.send(SET_STATE)
        await brings(tab, READ_ONLY)


SUM, ITEM = (example(CALLS, "rpc", success=True, done=done) for done in (True, False))
NO_METHOD = example(CALLS, "rpc", success=False)


@told(CALL, SUM, ITEM, NO_METHOD)
async def test_methods_are_called() -> None:
    @client_may_call
    def add(self: Any, a: int, b: int) -> int:
        return a + b

    @client_may_call
    async def each(self: Any, *numbers: int) -> AsyncIterator[int]:
        for number in numbers:
            yield number

    for members, answer in (
        ({"add": add}, SUM),
        ({"add": each}, ITEM),
        ({}, NO_METHOD),
    ):
        async with Tab(Script().agent(**members)) as tab:
            await tab.send(CALL)
            await brings(tab, answer)


LIVE, REPLAYED = (
    example(REPLY, RESPONSE, done=False, seq=3, replay=replay)
    for replay in (None, True)
)
CAUGHT_UP = example(REPLY, RESPONSE, replayComplete=True)
DONE, DONE_AGAIN = (
    example(
        REPLY, RESPONSE, done=True, body="", outcome=None, error=None, replay=replay
    )
    for replay in (None, True)
)
OFFER, ANSWER = (example(RESUME, RESUMING, probeId=probe) for probe in (None, "p1"))


@told(ASK, PROBE, ACK, OFFER, ANSWER, LIVE, REPLAYED, CAUGHT_UP, DONE, DONE_AGAIN)
async def test_a_reply_is_shown_live_and_replayed_to_who_comes_later() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one:
        await one.send(ASK)
        script.say("Hel")
        await brings(one, LIVE)
        async with Tab(agent) as two:
            await brings(two, OFFER)
            await two.send(PROBE)
            await brings(two, ANSWER)
            await two.send(ACK)
            await brings(two, REPLAYED, CAUGHT_UP)
            script.end()
            await brings(two, DONE)
        await brings(one, DONE)
        await one.send(ACK)
        await brings(one, REPLAYED, DONE_AGAIN)


IDLE = example(RESUME, NONE, reason="idle")


@told(PROBE, IDLE)
async def test_there_is_nothing_to_resume() -> None:
    async with Tab(Script().agent()) as tab:
        await tab.send(PROBE)
        await brings(tab, IDLE)


WAIT, LET_GO = example(RESUME, PENDING), example(RESUME, NONE, reason=None)
NOTHING = example(REPLY, RESPONSE, outcome="completed")


@told(ASK, PROBE, WAIT, LET_GO, NOTHING)
async def test_who_waits_for_a_reply_is_let_go_when_there_is_nothing_to_say() -> None:
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> None:
        await release.wait()

    agent = make_agent(on_chat_message)
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await one.send(ASK)
        await two.until(MESSAGES)
        await two.send(PROBE)
        await brings(two, WAIT)
        release.set()
        await brings(two, NOTHING, LET_GO)
        await brings(one, NOTHING)


ABORTED = example(REPLY, RESPONSE, outcome="aborted")


@told(ASK, CANCEL, ABORTED)
async def test_a_reply_is_stopped() -> None:
    script = Script()
    async with Tab(script.agent()) as tab:
        await tab.send(ASK)
        script.say("Hel")
        await tab.until(RESPONSE)
        await tab.send(CANCEL)
        await brings(tab, ABORTED)


SKIPPED = example(REPLY, RESPONSE, outcome="skipped")
CLEARED = example(OTHERS, "cf_agent_chat_clear")


@told(ASK, CLEAR, SKIPPED, CLEARED)
async def test_a_clear_skips_a_turn_that_waits_and_is_told_to_the_others() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await one.ask("x", "q0")
        script.say("Hel")
        await one.until(RESPONSE)
        await one.send(ASK)
        await one.send(CLEAR)
        await brings(one, SKIPPED)
        await brings(two, CLEARED)


INTERNAL = example(REPLY, RESPONSE, done=True, error=True)
IN_BAND, AFTER = (
    example(REPLY, RESPONSE, done=False, error=True),
    example(REPLY, RESPONSE, outcome="error"),
)


@told(ASK, INTERNAL, IN_BAND, AFTER)
async def test_a_reply_fails() -> None:
    overloaded = {"type": "error", "errorText": "Overloaded"}
    for item, frames in (
        (RuntimeError("secret"), [INTERNAL]),
        (overloaded, [IN_BAND, AFTER]),
    ):
        script = Script()
        async with Tab(script.agent()) as tab:
            await tab.send(ASK)
            script.say(item)
            await brings(tab, *frames)


RECOVERING = example(REPLY, RESPONSE, outcome="recovering")


@told(RECOVERING, OFFER)
async def test_a_reply_is_begun_anew() -> None:
    agent = Script().agent(on_interrupted="restart")
    await abandoned(agent, "half", lease_seconds=0.7, origin="u1")
    async with Tab(agent) as tab:
        await accept(tab)
        await brings(tab, RECOVERING, OFFER)
        await tab.cancel()
        await tab.done()


CONTINUED = example(REPLY, RESPONSE, continuation=True)
OWNED = example(RESUME, NONE, reason="continuation-owned")
LOCATED = example(OTHERS, UPDATED)


def calling(*more: Any) -> list[Any]:
    """A reply that calls the tool of the page."""
    name = {"toolCallId": "t1", "toolName": "location"}
    return [
        {"type": "start", "messageId": "a1"},
        {"type": "tool-input-available", **name, "input": {}},
        *more,
    ]


async def asked(tab: Tab, script: Script, *items: Any) -> None:
    script.say(*items)
    script.end()
    await tab.send(ASK)
    await tab.done()


@told(ASK, RESULT, LOCATED, CONTINUED, PROBE, OWNED)
async def test_a_result_is_told_to_all_and_the_reply_goes_on() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as one, Tab(agent) as two:
        await two.ready()
        await asked(one, script, *calling())
        await two.done()
        await one.send(RESULT)
        await brings(one, LOCATED)
        await brings(two, LOCATED)
        script.say("You are in Oslo.")
        first = await two.until(RESPONSE)
        assert first | {"id": "c1"} == CONTINUED
        await two.send(PROBE)
        await brings(two, OWNED)
        script.end()
        await two.done(first["id"])


@told(ASK, APPROVAL)
async def test_a_call_is_allowed_and_the_reply_goes_on() -> None:
    script = Script()
    asks = {"type": "tool-approval-request", "approvalId": "p1", "toolCallId": "t1"}
    async with Tab(script.agent()) as tab:
        await asked(tab, script, *calling(asks))
        await tab.send(APPROVAL)
        (part,) = (await tab.until(UPDATED))["message"]["parts"]
        assert part["state"] == "approval-responded"
        assert part["approval"] == {"id": "p1", "approved": True}
        offer = await tab.until(RESUMING)
        await tab.ack(offer["id"])
        script.say("Well.")
        script.end()
        await tab.done(offer["id"])


GONE, BACK = (
    example(RESUME, "cf_agent_chat_recovering", recovering=on) for on in (True, False)
)


@told(GONE, BACK)
@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_turn_that_nobody_runs_is_told_as_recovering_until_somebody_does(
    goes_on: bool,
) -> None:
    script = Script()
    # Its turns are run by workers, and there is none.
    agent = script.agent(runner="worker")
    await abandoned(agent, "par")
    async with Tab(agent) as early:
        await early.until(RESUMING)
        await early.ack()
        await brings(early, GONE)
        async with Tab(agent) as late:
            await brings(late, GONE)
            if goes_on:
                script.say("tial")
                script.end()
                run = await recovery.take_up(ref_of(agent, "room"), agent)
                assert run is not None
                await run.run()
            else:
                await agent.conversation("room", owner="a:v1").astop()
            for tab in (early, late):
                await brings(tab, BACK)
                await tab.until(RESPONSE, done=True)
    _, answer = await stored(agent)
    assert message_text(answer) == ("partial" if goes_on else "par")


@pytest.mark.parametrize("sections", [CLIENT, SERVER])
def test_every_example_of_the_page_is_in_one_of_these_exchanges(sections: str) -> None:
    frames = examples(sections)
    assert frames
    assert [frame for frame in frames if frame not in _told] == []
