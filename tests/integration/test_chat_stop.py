"""Stop and clear, and what is kept."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from django_streams import StreamWriter
from django_streams.turns import door, status
from django_streams.turns.records import TurnStatus
from django_streams.turns.replay import turn_streams

from .chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    Script,
    Tab,
    eventually,
    make_agent,
    message_text,
    ref_of,
    responses,
    stored,
    text_of,
    turn_of,
)

pytestmark = pytest.mark.usefixtures("chat")

ABORTED = {"body": "", "done": True, "outcome": "aborted", "id": "q1"}


async def test_stop_ends_the_reply_and_keeps_what_was_said() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await tab.ask("x")
        script.say("par", "tial")
        await tab.until(RESPONSE, seq=4)
        await tab.cancel()
        frames, theirs = await tab.done(), await other.done()
        await script.ended.wait()
    last = frames[-1]
    assert last | ABORTED == last and "error" not in last
    assert theirs[-1]["outcome"] == "aborted"
    assert [f["type"] for f in theirs[-2:]] == [MESSAGES, RESPONSE]
    (_, answer) = await stored(agent)
    assert message_text(answer) == "partial"
    assert answer["parts"][-1]["state"] == "done"
    turn = await turn_of(agent)
    assert turn.status is TurnStatus.ABORTED
    log = await turn_streams(door.alias()).astatus(turn.stream)
    assert log is not None and (log.state, log.error) == ("errored", "cancelled")
    assert script.turns[0].cancelled.is_set()


async def test_any_connection_may_stop_a_reply_also_after_a_reload() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await first.ask("x")
        script.say("a")
        await first.until(RESPONSE, seq=3)
    async with Tab(agent) as second:
        await second.until("cf_agent_stream_resuming")
        await second.cancel()
        assert (await second.done())[-1]["outcome"] == "aborted"
        # There is no error for later visitors either.
        assert (await second.probe())["type"] == NONE


async def test_a_handler_that_ignores_the_stop_does_not_hold_it_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> Any:
        yield "a"
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield "too late"

    agent = make_agent(on_chat_message)
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.until(RESPONSE, seq=3)
        async with asyncio.timeout(3):
            await tab.cancel()
            await tab.done()
    assert message_text((await stored(agent))[1]) == "a"
    named = "turn 'q1' of .* goes on though it was cancelled"
    await eventually(lambda: re.search(named, caplog.text))
    release.set()


async def test_what_a_handler_yields_after_the_stop_is_not_taken() -> None:
    async def on_chat_message(self: Any, turn: Any) -> Any:
        yield "a"
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield "late"
            raise

    agent = make_agent(on_chat_message)
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.until(RESPONSE, seq=3)
        await tab.cancel()
        await tab.done()
    assert text_of(tab.kept) == message_text((await stored(agent))[1]) == "a"


async def test_a_stop_in_the_middle_of_a_write_keeps_log_and_message_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written, release = asyncio.Event(), asyncio.Event()
    apush = StreamWriter.apush

    async def slow(self: StreamWriter, chunk: Any) -> None:
        await apush(self, chunk)
        if chunk.get("delta") == "b":
            written.set()
            await release.wait()

    monkeypatch.setattr(StreamWriter, "apush", slow)
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a", "b")
        await written.wait()
        await tab.cancel()
        while not script.turns[0].cancelled.is_set():
            await asyncio.sleep(0.01)
        release.set()
        await tab.done()
    assert text_of(tab.kept) == message_text((await stored(agent))[1]) == "ab"


async def test_a_blocking_handler_can_be_stopped() -> None:
    import threading

    release = threading.Event()

    def on_chat_message(self: Any, turn: Any) -> Any:
        yield "a"
        release.wait(10)
        yield "b"

    agent = make_agent(on_chat_message)
    try:
        async with Tab(agent) as tab:
            await tab.ask("x")
            await tab.until(RESPONSE, seq=3)
            await tab.cancel()
            assert (await tab.done())[-1]["outcome"] == "aborted"
    finally:
        release.set()


async def test_stop_before_the_first_word_leaves_no_message() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        await script.begun.wait()
        await tab.cancel()
        assert (await tab.done())[-1]["outcome"] == "aborted"
    assert len(await stored(agent)) == 1


async def test_a_queued_turn_can_be_stopped_and_never_runs() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x", "q1")
        await script.begun.wait()
        await tab.ask("y", "q2")
        await tab.cancel("q2")
        assert (await tab.done("q2"))[-1]["outcome"] == "aborted"
        script.end()
        await tab.done("q1")
        # Whatever was queued would run now.
        assert await tab.silent()
    assert len(script.turns) == 1


async def test_stopping_what_is_over_or_unknown_changes_nothing() -> None:
    script = Script()
    agent = script.agent()
    script.say("a")
    script.end()
    async with Tab(agent) as tab:
        await tab.cancel("unknown")
        await tab.ask("x")
        await tab.done()
        await tab.cancel()
        await tab.cancel()
        assert await tab.silent()
    assert (await turn_of(agent)).status is TurnStatus.COMPLETED


async def test_stop_and_finish_at_once_have_one_result() -> None:
    agents = []
    for at in range(10):
        script = Script()
        agent = script.agent()
        agents.append(agent)
        async with Tab(agent) as tab:
            await tab.ask("x")
            script.say("a")
            await tab.until(RESPONSE, seq=3)
            script.end()
            if at % 2:
                await asyncio.sleep(0)
            await tab.cancel()
            frames = responses(await tab.done())
            assert await tab.silent(0.05)
        ends = [f for f in frames if f["done"]]
        assert len(ends) == 1
        turn = await turn_of(agent)
        assert (ends[0].get("outcome") == "aborted") == (
            turn.status is TurnStatus.ABORTED
        )


async def test_the_stream_itself_may_be_cancelled() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        turn = await turn_of(agent)
        await turn_streams(door.alias()).acancel(turn.stream)
        script.say("b")
        assert (await tab.done())[-1]["outcome"] == "aborted"
    assert message_text((await stored(agent))[1]) == text_of(tab.kept)


async def test_a_turn_can_wait_for_the_stop() -> None:
    woken = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> Any:
        yield "a"
        try:
            await turn.sleep(60)
        finally:
            woken.set()

    agent = make_agent(on_chat_message)
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.until(RESPONSE, seq=3)
        await tab.cancel()
        await tab.done()
        async with asyncio.timeout(2):
            await woken.wait()


async def test_clear_empties_the_conversation_and_tells_the_others() -> None:
    script = Script()
    agent = script.agent()
    script.say("a")
    script.end()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await tab.ask("x")
        await tab.done()
        await other.done()
        log = (await turn_of(agent)).stream
        await tab.send({"type": "cf_agent_chat_clear"})
        assert await other.next() == {"type": "cf_agent_chat_clear"}
        assert (await tab.next())["messages"] == []
        assert await tab.silent()
        assert await stored(agent) == []
        while await turn_streams(door.alias()).astatus(log) is not None:
            await asyncio.sleep(0.01)
        assert (await tab.probe())["type"] == NONE


async def test_clear_in_mid_reply_shows_nothing_of_it_afterwards() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        await tab.send({"type": "cf_agent_chat_clear"})
        mine, theirs = await tab.done(), await other.done()
    # The end of an open text would bring the message back that was cleared. For
    # who cleared, it may have been on its way already.
    gone = theirs[theirs.index({"type": "cf_agent_chat_clear"}) :]
    assert len(responses(gone)) == 1
    for frames in (mine, gone):
        assert frames[-1]["outcome"] == "aborted"
        assert frames[-2]["messages"] == []


async def test_clear_in_mid_reply_ends_it_and_keeps_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        await tab.ask("y", "q2")
        await tab.send({"type": "cf_agent_chat_clear"})
        frames = [*await tab.done("q2"), *await tab.done("q1")]
        by_id = {f["id"]: f["outcome"] for f in frames if f.get("outcome")}
        assert by_id == {"q2": "skipped", "q1": "aborted"}
        assert await stored(agent) == []
        turn = await turn_of(agent)
        assert await turn_streams(door.alias()).astatus(turn.stream) is None
        # The conversation goes on.
        script.say("fresh")
        script.end()
        await tab.ask("z", "q3")
        assert text_of(await tab.done("q3"), "q3") == "fresh"
    assert len(await stored(agent)) == 2


async def test_clear_forgets_an_error() -> None:
    from django_streams import PublicError

    script = Script()
    agent = script.agent()
    script.say(PublicError("kaput"))
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.done()
        await tab.send({"type": "cf_agent_chat_clear"})
        assert (await tab.probe())["type"] == NONE
    seen = await door.run(status.snapshot, ref_of(agent, "room"))
    assert seen.failed is None
