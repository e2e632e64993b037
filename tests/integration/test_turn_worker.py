"""A worker runs what waits, one turn of a conversation at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from django.db import OperationalError

from django_streams.turns import agents, backlog, door, queue, status
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnRecord, TurnStatus
from django_streams.turns.worker import Job, Worker

from .chatting import (
    TIMEOUT,
    AgentClass,
    Script,
    Tab,
    eventually,
    make_agent,
    message_text,
    ref_of,
    stored,
    text_of,
    turn_of,
    user_message,
)

pytestmark = pytest.mark.usefixtures("chat")


@asynccontextmanager
async def working(
    *classes: AgentClass, concurrency: int = 5, grace: float = 0.0, **options: Any
) -> AsyncIterator[Worker]:
    """A worker for some agents; leaving stops it."""
    for one in classes:
        agents.register(one.agent_name, one)
    names = [one.agent_name for one in classes]
    worker = Worker(names, concurrency=concurrency, grace=grace, **options)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.release()
        async with asyncio.timeout(TIMEOUT):
            await task


async def submit(ref: ConversationRef, request_id: str = "q1", text: str = "x") -> None:
    given = Submission(
        request_id=request_id,
        messages=[user_message(text, f"u-{request_id}")],
        origin_ids=[f"u-{request_id}"],
    )
    await door.run(queue.submit, ref, given)


async def ended(ref: ConversationRef, request_id: str = "q1") -> TurnRecord:
    async with asyncio.timeout(TIMEOUT):
        while True:
            turn = await door.run(status.find_turn, ref, request_id)
            if turn is not None and turn.status.over:
                return turn
            await asyncio.sleep(0.01)


def by_worker(script: Script, **members: Any) -> AgentClass:
    return script.agent(runner="worker", **members)


async def test_a_turn_submitted_before_and_one_submitted_after_are_run() -> None:
    said = []

    async def on_chat_message(self: Any, turn: Any) -> str:
        said.append(turn.request_id)
        return f"answer to {turn.text}"

    agent = make_agent(on_chat_message, runner="worker")
    ref = ref_of(agent, "room")
    await submit(ref, "q1", "one")
    async with working(agent):
        assert (await ended(ref, "q1")).status is TurnStatus.COMPLETED
        await submit(ref, "q2", "two")
        await ended(ref, "q2")
    assert said == ["q1", "q2"]
    answers = [message_text(m) for m in await stored(agent) if m["role"] != "user"]
    assert answers == ["answer to one", "answer to two"]


async def test_a_socket_shows_what_a_worker_writes_and_runs_nothing_itself() -> None:
    script = Script()
    agent = by_worker(script)
    async with Tab(agent) as tab:
        await tab.ready()
        await tab.ask("x")
        await asyncio.sleep(0.3)
        assert not script.begun.is_set()
        async with working(agent):
            script.say("by ", "worker")
            script.end()
            assert text_of(await tab.done()) == "by worker"


async def test_only_so_many_run_at_a_time() -> None:
    running: set[str] = set()
    most = []
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> None:
        running.add(turn.conversation.name)
        most.append(len(running))
        await release.wait()
        running.discard(turn.conversation.name)

    agent = make_agent(on_chat_message, runner="worker")
    refs = [ref_of(agent, f"room{at}") for at in range(5)]
    for ref in refs:
        await submit(ref)
    async with working(agent, concurrency=2) as worker:
        await eventually(lambda: len(running) == 2)
        health = await worker.health()
        assert (health.running, health.queued) == (2, 3)
        release.set()
        for ref in refs:
            await ended(ref)
        await eventually(lambda: not running)
        health = await worker.health()
    assert max(most) == 2
    assert (health.queued, health.oldest, health.stopping) == (0, None, False)
    assert health.swept is not None and health.swept < 5


async def test_a_conversation_is_worked_off_in_order_and_lets_others_pass() -> None:
    order: list[tuple[str, str]] = []

    async def on_chat_message(self: Any, turn: Any) -> None:
        order.append((turn.conversation.name, turn.request_id))

    agent = make_agent(on_chat_message, runner="worker")
    flood, single = ref_of(agent, "flood"), ref_of(agent, "single")
    for number in range(4):
        await submit(flood, f"q{number}")
    await submit(single, "q0")
    async with working(agent, concurrency=1):
        await ended(flood, "q3")
        await ended(single, "q0")
    assert [name for name, _ in order].index("single") <= 1
    assert [q for name, q in order if name == "flood"] == ["q0", "q1", "q2", "q3"]


async def test_after_a_stop_nothing_is_claimed_and_what_runs_finishes() -> None:
    script = Script()
    agent = by_worker(script)
    ref, later = ref_of(agent, "room"), ref_of(agent, "later")
    await submit(ref)
    async with working(agent, grace=60.0) as worker:
        await script.begun.wait()
        worker.stop()
        await submit(later)
        script.say("to the end")
        script.end()
        turn = await ended(ref)
    assert turn.status is TurnStatus.COMPLETED
    assert message_text((await stored(agent))[1]) == "to the end"
    assert (await door.run(status.snapshot, later)).pending == "q1"


@pytest.mark.parametrize("how", ["the grace time is over", "a second signal"])
async def test_what_does_not_finish_is_given_back_at_once(how: str) -> None:
    script = Script()
    agent = by_worker(script)
    ref = ref_of(agent, "room")
    await submit(ref)
    grace = 0.0 if how == "the grace time is over" else 60.0
    async with working(agent, grace=grace) as worker:
        script.say("half of ")
        await script.begun.wait()
        await eventually_streaming(agent)
        worker.stop()
        if grace:
            worker.release()
        await script.ended.wait()
    seen = await door.run(status.snapshot, ref)
    assert seen.running is not None and seen.lapsed
    assert not seen.running.cancel_requested


async def eventually_streaming(agent: AgentClass) -> None:
    async with asyncio.timeout(TIMEOUT):
        while not (await turn_of(agent)).stream:
            await asyncio.sleep(0.01)


async def test_a_turn_that_ends_as_it_is_given_back_is_over_or_left_to_others() -> None:
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> str:
        await release.wait()
        return "done"

    agent = make_agent(on_chat_message, runner="worker")
    refs = [ref_of(agent, f"room{at}") for at in range(10)]
    for ref in refs:
        await submit(ref)
    async with working(agent, concurrency=10) as worker:
        while (await worker.health()).running < 10:
            await asyncio.sleep(0.01)
        release.set()
        for _ in range(5):
            await asyncio.sleep(0)
    for ref in refs:
        seen = await door.run(status.snapshot, ref)
        turn = await door.run(status.find_turn, ref, "q1")
        assert turn is not None
        assert turn.status is TurnStatus.COMPLETED or seen.lapsed


async def test_a_lapsed_turn_that_nobody_follows_is_recovered() -> None:
    agent = Script().agent(runner="worker", on_interrupted="fail")
    ref = ref_of(agent, "room")
    await submit(ref)

    def claim() -> None:
        from django_streams.turns import conversations

        pk = conversations.find(ref)
        assert pk is not None
        assert queue.claim(pk, message_id="a1", lease=0.0) is not None

    await door.run(claim)
    async with working(agent):
        turn = await ended(ref)
    assert turn.status is TurnStatus.ERRORED


async def test_a_worker_leaves_the_agents_of_others_alone() -> None:
    mine, others = Script(), Script()
    agent, other = by_worker(mine), by_worker(others)
    await submit(ref_of(other, "room"))
    await submit(ref_of(agent, "room"))
    async with working(agent):
        await mine.begun.wait()
        assert not others.begun.is_set()
        mine.end()
        await ended(ref_of(agent, "room"))
    assert (await door.run(backlog.measure, [other.agent_name])).queued == 1


async def test_a_worker_goes_on_after_the_database_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures = iter([OperationalError("gone"), ValueError("odd")])
    real = backlog.look

    def look(*args: Any, **options: Any) -> backlog.Look:
        if (failure := next(failures, None)) is not None:
            raise failure
        return real(*args, **options)

    monkeypatch.setattr(backlog, "look", look)
    script = Script()
    agent = by_worker(script)
    ref = ref_of(agent, "room")
    await submit(ref)
    async with working(agent):
        script.say("back")
        script.end()
        assert (await ended(ref)).status is TurnStatus.COMPLETED


async def test_a_job_is_done_again_and_again_also_after_it_failed() -> None:
    done = []

    async def work() -> None:
        done.append(1)
        if len(done) == 1:
            raise RuntimeError("once")

    job = Job("a job", work, every=0.01, first=0.0)
    async with working(Script().agent(), jobs=[job]):
        await eventually(lambda: len(done) >= 3)


async def test_a_turn_runs_where_no_server_is_also_if_it_is_meant_for_one() -> None:
    script = Script()
    agent = script.agent()
    ref = ref_of(agent, "room")
    await submit(ref)
    async with working(agent):
        script.say("here")
        script.end()
        assert (await ended(ref)).status is TurnStatus.COMPLETED
