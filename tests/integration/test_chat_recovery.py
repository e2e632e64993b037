"""A turn whose runner vanished is told to be over, and "running" is no lie."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from django_streams.turns import (
    conversations,
    door,
    ends,
    lease,
    queue,
    recovery,
    status,
)
from django_streams.turns.queue import Submission
from django_streams.turns.records import Ending, TurnRecord, TurnStatus
from django_streams.turns.replay import turn_streams
from django_streams.turns.run import Run

from .chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    RESUMING,
    Script,
    Tab,
    make_agent,
    message_text,
    ref_of,
    responses,
    stored,
    text_of,
    turn_of,
    user_message,
)

pytestmark = pytest.mark.usefixtures("chat")

INTERRUPTED = "The reply was interrupted."


async def abandoned(agent: Any, *words: str, lease_seconds: float = 0.0) -> TurnRecord:
    """A running turn as a process leaves it that was killed after *words*."""
    ref = ref_of(agent, "room")
    submission = Submission(
        request_id="q1",
        messages=[user_message("x", "u-q1")],
        origin_ids=["u-q1"],
    )
    submitted = await door.run(queue.submit, ref, submission)
    turn = await door.run(
        queue.claim,
        submitted.turn.conversation_pk,
        message_id="a1",
        lease=lease_seconds,
    )
    assert turn is not None
    if not words:
        return turn
    streams = turn_streams(door.alias())
    writer = await streams.aopen(
        "s-" + agent.agent_name, tag="q1", lease=lease_seconds or 0.01, on_lapse="wait"
    )
    await door.run(queue.begin, turn, ref.wake_key, stream=writer.stream_id)
    await writer.aextend(
        [
            {"type": "start", "messageId": "a1"},
            {"type": "text-start", "id": "q1"},
            *({"type": "text-delta", "id": "q1", "delta": word} for word in words),
        ]
    )
    begun: TurnRecord = await turn_of(agent)
    return begun


async def test_a_connection_that_meets_a_lapsed_turn_is_told_it_is_over() -> None:
    agent = Script().agent()
    await abandoned(agent, "par", "tial")
    async with Tab(agent) as tab:
        _, transcript = await tab.ready()
        assert message_text(transcript["messages"][1]) == "partial"
        async with asyncio.timeout(1):
            assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        frames = responses(await tab.done())
    assert text_of(frames) == "partial"
    assert frames[-1]["error"] is True
    assert frames[-1]["body"] == INTERRUPTED
    assert (await turn_of(agent)).status is TurnStatus.ERRORED


async def test_a_turn_that_never_began_is_ended_too() -> None:
    agent = Script().agent()
    await abandoned(agent)
    async with Tab(agent) as tab:
        assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        assert (await tab.done())[-1]["body"] == INTERRUPTED
    assert len(await stored(agent)) == 1


async def test_a_reader_that_is_attached_when_the_runner_dies_is_told() -> None:
    agent = Script().agent()
    await abandoned(agent, "a", lease_seconds=0.7)
    async with Tab(agent) as tab:
        await tab.until(RESUMING)
        await tab.ack()
        await tab.until(RESPONSE, replayComplete=True)
        async with asyncio.timeout(3):
            frames = await tab.done()
    assert [f["type"] for f in frames] == [MESSAGES, RESPONSE]
    assert frames[-1]["body"] == INTERRUPTED


async def test_a_stopped_turn_without_a_runner_is_aborted_and_no_error() -> None:
    agent = Script().agent()
    await abandoned(agent, "a")
    await door.run(ends.cancel, ref_of(agent, "room"), "q1")
    async with Tab(agent) as tab:
        assert (await tab.probe())["type"] == NONE
    assert (await turn_of(agent)).status is TurnStatus.ABORTED
    assert message_text((await stored(agent))[1]) == "a"


async def test_the_queue_goes_on_behind_a_lapsed_turn() -> None:
    script = Script()
    agent = script.agent()
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await tab.ready()
        script.say("next")
        script.end()
        await tab.ask("y", "q2")
        assert text_of(await tab.done("q2"), "q2") == "next"


async def test_a_runner_that_lost_its_turn_can_no_longer_end_it() -> None:
    agent = Script().agent()
    turn = await abandoned(agent, "a")
    ref = ref_of(agent, "room")
    assert await recovery.sweep(ref)
    assert not await recovery.sweep(ref)
    with pytest.raises(queue.Lost):
        await door.run(lease.renew, turn, 5.0)
    ending = Ending(status=TurnStatus.COMPLETED)
    assert not await door.run(ends.finish_alone, turn, ref.wake_key, ending)
    assert (await turn_of(agent)).status is TurnStatus.ERRORED


async def test_of_many_sweepers_one_ends_the_turn() -> None:
    agent = Script().agent()
    await abandoned(agent, "a")
    ref = ref_of(agent, "room")
    results = await asyncio.gather(*(recovery.sweep(ref) for _ in range(8)))
    assert results.count(True) == 1
    assert len(await stored(agent)) == 2


async def test_a_live_turn_is_left_alone() -> None:
    agent = Script().agent()
    await abandoned(agent, "a", lease_seconds=60.0)
    assert not await recovery.sweep(ref_of(agent, "room"))


async def test_a_stream_that_its_runner_did_not_announce_is_settled() -> None:
    agent = Script().agent()
    await abandoned(agent)
    streams = turn_streams(door.alias())
    mine = {"conversation": ref_of(agent, "room").key}
    for name, metadata in (("orphan", mine), ("other", {"conversation": "other"})):
        await streams.aopen(
            f"{name}-{agent.agent_name}", tag="q1", lease=60, metadata=metadata
        )
    await recovery.sweep(ref_of(agent, "room"))
    states = {s.stream_id.split("-")[0]: s.state for s in await streams.alist(tag="q1")}
    assert states == {"orphan": "errored", "other": "streaming"}


async def test_a_lease_is_renewed_while_the_handler_is_silent(
    chat_alias: str, settings: Any
) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "TURN_LEASE": 1.0}
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        await script.begun.wait()
        for _ in range(8):
            await asyncio.sleep(0.2)
            seen = await door.run(status.snapshot, ref_of(agent, "room"))
            assert seen.running is not None and not seen.lapsed
        script.say("late")
        script.end()
        assert text_of(await tab.done()) == "late"


async def test_a_turn_that_was_taken_over_writes_nothing_more() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        # As if this process had been asleep and another had swept meanwhile.
        running = await turn_of(agent)
        while not await recovery.sweep(ref_of(agent, "room")):
            # Its next renewal may come between the two.
            await door.run(expire, running)
        script.say("zombie")
        frames = await tab.done()
        assert frames[-1]["body"] == INTERRUPTED
        await script.ended.wait()
    assert message_text((await stored(agent))[1]) == "a"


async def test_a_turn_that_was_taken_over_before_its_reply_leaves_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if the renewal were late by as much as the lease.
    monkeypatch.setattr(Run, "_renew", late)
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> str:
        await release.wait()
        return "too late"

    agent = make_agent(on_chat_message)
    async with Tab(agent) as tab:
        await tab.ask("x")
        while (turn := await turn_of(agent)) is None or not turn.epoch:
            await asyncio.sleep(0.01)
        await door.run(expire, turn)
        assert await recovery.sweep(ref_of(agent, "room"))
        assert (await tab.done())[-1]["body"] == INTERRUPTED
        release.set()
        streams = turn_streams(door.alias())
        while not (opened := await streams.alist(tag="q1")):
            await asyncio.sleep(0.01)
        while opened[0].state == "streaming":
            opened = await streams.alist(tag="q1")
    assert opened[0].error == "interrupted"
    assert len(await stored(agent)) == 1


async def late(self: Run) -> None:
    """A renewal that does not happen."""


def expire(turn: TurnRecord) -> None:
    from django_streams.turns import clock

    alias = door.alias()
    queue.turns().filter(pk=turn.pk).update(lease_expires_at=clock.after(alias, 0))


async def test_a_queued_turn_of_a_process_that_died_runs_when_somebody_comes() -> None:
    script = Script()
    agent = script.agent()
    ref = ref_of(agent, "room")
    submission = Submission(
        request_id="q1",
        messages=[user_message("x", "u-q1")],
        origin_ids=["u-q1"],
    )
    await door.run(queue.submit, ref, submission)
    assert await door.run(conversations.find, ref) is not None
    async with Tab(agent) as tab:
        await tab.until(RESUMING)
        await tab.ack()
        await tab.until(RESPONSE, replayComplete=True)
        script.say("at last")
        script.end()
        assert text_of(await tab.done()) == "at last"
