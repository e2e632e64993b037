"""A turn whose runner vanished is told to be over, and "running" is no lie."""

from __future__ import annotations

import asyncio
import io
import threading
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections
from django.db.models import F

from django_streams.models import Turn
from django_streams.turns import (
    conversations,
    door,
    ends,
    lease,
    mending,
    queue,
    recovery,
    run,
    runner,
    status,
)
from django_streams.turns.agents import register
from django_streams.turns.pulse import Pulse
from django_streams.turns.queue import Submission
from django_streams.turns.records import Ending, TurnRecord, TurnStatus
from django_streams.turns.replay import turn_streams

from .chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    RESUMING,
    Script,
    Tab,
    make_agent,
    message_text,
    quiet,
    ref_of,
    responses,
    stored,
    text_of,
    turn_of,
    user_message,
)
from .leaving import abandoned

pytestmark = pytest.mark.usefixtures("chat")

FAILS = {"on_interrupted": "fail"}
INTERRUPTED = "The reply was interrupted."


async def test_a_connection_that_meets_a_lapsed_turn_is_told_it_is_over() -> None:
    agent = Script().agent(**FAILS)
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
    agent = Script().agent(**FAILS)
    await abandoned(agent)
    async with Tab(agent) as tab:
        assert (await tab.probe())["type"] == RESUMING
        await tab.ack()
        assert (await tab.done())[-1]["body"] == INTERRUPTED
    assert len(await stored(agent)) == 1


async def test_a_reader_that_is_attached_when_the_runner_dies_is_told() -> None:
    agent = Script().agent(**FAILS)
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


async def test_what_was_said_stays_if_the_next_runner_is_stopped_as_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the handler runs, while the transcript is being read."""
    agent = Script().agent()
    await abandoned(agent, "partial")
    ref = ref_of(agent, "room")
    turn = await turn_of(agent)
    reads = count()
    stopped = threading.Event()

    def load(*arguments: Any) -> list[Any]:
        if not next(reads):
            stopped.wait(10)
        return mending.load(*arguments)

    monkeypatch.setattr(run, "mending", SimpleNamespace(load=load))
    taken = await runner.take(ref, turn.conversation_pk, agent)
    assert taken is not None
    running = asyncio.create_task(taken.run())
    await door.run(ends.cancel, ref, "q1")
    try:
        await running
    finally:
        stopped.set()
    assert (await turn_of(agent)).status is TurnStatus.ABORTED
    assert message_text((await stored(agent))[1]) == "partial"


async def test_the_queue_goes_on_behind_a_lapsed_turn() -> None:
    script = Script()
    agent = script.agent(**FAILS)
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await tab.ready()
        script.say("next")
        script.end()
        await tab.ask("y", "q2")
        assert text_of(await tab.done("q2"), "q2") == "next"


async def test_a_runner_that_lost_its_turn_can_no_longer_end_it() -> None:
    agent = Script().agent(**FAILS)
    turn = await abandoned(agent, "a")
    ref = ref_of(agent, "room")
    register(agent.agent_name, agent)
    assert await recovery.sweep(ref)
    assert not await recovery.sweep(ref)
    with pytest.raises(queue.Lost):
        await door.run(lease.renew, turn, 5.0)
    ending = Ending(status=TurnStatus.COMPLETED)
    assert not await door.run(ends.finish_alone, turn, ref.wake_key, ending)
    assert (await turn_of(agent)).status is TurnStatus.ERRORED


async def test_a_turn_that_its_runner_gave_back_has_lost_no_attempt() -> None:
    """Frequent deploys must not fail a long reply; crashes must."""
    agent = Script().agent(max_recovery_attempts=1)
    ref = ref_of(agent, "room")
    turn = await abandoned(agent, "a", lease_seconds=60.0)

    async def taken(name: str) -> bool:
        found = await door.run(
            lease.recover,
            ref,
            await turn_of(agent),
            60.0,
            name,
            attempts=1,
            restart=False,
        )
        return found is not None

    for number in range(3):
        assert await door.run(lease.release, turn, free=True)
        assert await taken(f"deploy {number}")
        turn = await turn_of(agent)
    for number, goes_on in enumerate([True, False]):
        await let_lapse(agent)
        assert await taken(f"crash {number}") is goes_on
    assert turn.attempt == 4


async def let_lapse(agent: Any) -> None:
    rows = Turn.objects.using(door.alias()).filter(status="running")
    await door.run(rows.update, lease_expires_at=F("started_at"))


async def test_of_many_sweepers_one_ends_the_turn() -> None:
    agent = Script().agent(**FAILS)
    await abandoned(agent, "a")
    ref = ref_of(agent, "room")
    register(agent.agent_name, agent)
    await asyncio.gather(*(recovery.sweep(ref) for _ in range(8)))
    assert (await turn_of(agent)).epoch == 2
    assert len(await stored(agent)) == 2


async def test_a_live_turn_is_left_alone() -> None:
    agent = Script().agent()
    await abandoned(agent, "a", lease_seconds=60.0)
    assert not await recovery.sweep(ref_of(agent, "room"))


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
    agent = script.agent(**FAILS)
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        # As if this process had been asleep and another had swept meanwhile.
        running = await turn_of(agent)
        while not (await turn_of(agent)).status.over:
            # Its next renewal may come between the two.
            await door.run(expire, running)
            await recovery.sweep(ref_of(agent, "room"))
        script.say("zombie")
        frames = await tab.done()
        assert frames[-1]["body"] == INTERRUPTED
        await script.ended.wait()
    assert message_text((await stored(agent))[1]) == "a"


async def test_a_turn_that_was_taken_over_before_its_reply_leaves_no_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if the renewal were late by as much as the lease.
    monkeypatch.setattr(Pulse, "_ask", late)
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> str:
        await release.wait()
        return "too late"

    agent = make_agent(on_chat_message, **FAILS)
    async with Tab(agent) as tab:
        await tab.ask("x")
        while (turn := await turn_of(agent)) is None or not turn.epoch:
            await asyncio.sleep(0.01)
        await door.run(expire, turn)
        assert await recovery.sweep(ref_of(agent, "room"))
        assert (await tab.done())[-1]["body"] == INTERRUPTED
        release.set()
    await quiet()
    assert not await turn_streams(door.alias()).alist(tag="q1")
    assert len(await stored(agent)) == 1


async def late(self: Pulse, *question: Any) -> None:
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


def collect(alias: str, **options: Any) -> str:
    out = io.StringIO()
    try:
        call_command("gc_streams", using=alias, stdout=out, **options)
    finally:
        connections.close_all()
    return out.getvalue()


async def test_gc_makes_a_message_of_what_nobody_recovers(chat_alias: str) -> None:
    agent = Script().agent()
    left = await abandoned(agent, "par", "tial", lease_seconds=0.05)
    await asyncio.sleep(0.1)
    said = await asyncio.to_thread(collect, chat_alias, stale=300)
    assert "found 0" in said, "it may be continued yet"
    assert (await turn_of(agent)).status is TurnStatus.RUNNING
    assert "found 1" in await asyncio.to_thread(
        collect, chat_alias, stale=0, dry_run=True
    )
    assert "settled 1" in await asyncio.to_thread(collect, chat_alias, stale=0)
    turn = await turn_of(agent)
    assert (turn.status, turn.error) == (TurnStatus.ERRORED, INTERRUPTED)
    assert message_text((await stored(agent))[1]) == "partial"
    log = await turn_streams(door.alias()).astatus(left.stream)
    assert log is not None and (log.state, log.error) == ("errored", "interrupted")


async def test_gc_leaves_a_silent_turn_alone_that_somebody_runs(
    chat_alias: str,
) -> None:
    agent = Script().agent()
    await abandoned(agent, "a", lease_seconds=60.0)
    await asyncio.to_thread(collect, chat_alias, stale=0)
    assert (await turn_of(agent)).status is TurnStatus.RUNNING


async def test_what_is_kept_of_an_interrupted_turn_is_sanitised() -> None:
    def sanitize_message(self: Any, message: Any) -> Any:
        return message | {"metadata": {"clean": True}}

    agent = Script().agent(sanitize_message=sanitize_message, **FAILS)
    await abandoned(agent, "a")
    async with Tab(agent) as tab:
        await tab.ready()
    assert (await stored(agent))[1]["metadata"] == {"clean": True}
