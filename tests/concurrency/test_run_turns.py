"""Workers as processes of their own: signals, kills, and many at once."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from django_streams import Streams, ids
from django_streams.models import Conversation, Turn
from django_streams.turns import (
    agents,
    clock,
    conversations,
    door,
    queue,
    status,
    transcript,
)
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, TurnRecord, TurnStatus
from django_streams.turns.replay import turn_streams
from django_streams.turns.worker import Worker
from tests.conftest import RealDb
from tests.integration.chatting import message_text, user_message

from .brood import Brood, Ready
from .fleet import TIMEOUT, WorkerProcess, fleet_env, start_workers
from .fleet_site import read_notes, words

KINDS = [
    pytest.param("default", id="sqlite"),
    pytest.param("postgresql", id="postgresql", marks=pytest.mark.needs("postgresql")),
]


@pytest.fixture(params=KINDS)
def alias(
    request: pytest.FixtureRequest, real_db: RealDb, settings: Any
) -> Iterator[str]:
    real_db("default")
    name = real_db(request.param)
    settings.DJANGO_STREAMS = {"DATABASE": name, "RUNNER": "worker"}
    yield name


def submit(ref: ConversationRef, request_id: str, text: str = "x") -> None:
    message = user_message(text, f"u-{request_id}")
    queue.submit(
        ref,
        Submission(
            request_id=request_id, messages=[message], origin_ids=[message["id"]]
        ),
    )


def room(agent: str, name: str = "room") -> ConversationRef:
    return ConversationRef(agent, name, "a:v1")


def turn_of(ref: ConversationRef, request_id: str = "q1") -> TurnRecord:
    turn = status.find_turn(ref, request_id)
    assert turn is not None
    return turn


def ended(ref: ConversationRef, request_id: str = "q1") -> TurnRecord:
    until(lambda: turn_of(ref, request_id), lambda turn: turn.status.over)
    return turn_of(ref, request_id)


def until(read: Any, fits: Any) -> Any:
    deadline = time.monotonic() + TIMEOUT
    while not fits(value := read()):
        assert time.monotonic() < deadline, value
        time.sleep(0.02)
    return value


def streaming(ref: ConversationRef, request_id: str = "q1") -> None:
    """Return when some of the reply is stored."""
    turn = until(lambda: turn_of(ref, request_id), lambda turn: bool(turn.stream))
    log = turn_streams(door.alias())
    # A message begins with three chunks that say nothing.
    until(lambda: log.status(turn.stream), lambda seen: seen and seen.cursor > 3)


def reply(ref: ConversationRef) -> str:
    messages = [json.loads(text) for text in transcript.texts(ref)]
    return "".join(message_text(m) for m in messages if m["role"] == "assistant")


def test_a_worker_runs_what_waits_and_says_how_it_is(
    alias: str, tmp_path: Path
) -> None:
    ref = room("counting")
    submit(ref, "q1", "5 0")
    file = tmp_path / "health.json"
    with WorkerProcess(fleet_env(alias), "--health-file", str(file)) as worker:
        assert ended(ref).status is TurnStatus.COMPLETED
        assert reply(ref) == words(5)
        worker.wait_for("running=0 queued=0 oldest=- swept=0.")
        worker.wait_for("finished=1")
        until(lambda: json.loads(file.read_text()), lambda h: h["finished"] == 1)
        health = json.loads(file.read_text())
        assert (health["pid"], health["queued"]) == (worker.pid, 0)
        assert worker.stop() == 0
        log = worker.log()
    assert "running turns of careless, counting, noted" in log
    assert "run_turns: stopped" in log
    assert "Traceback" not in log


def test_a_signal_lets_what_runs_finish_and_claims_nothing_more(alias: str) -> None:
    ref, later = room("counting"), room("counting", "later")
    submit(ref, "q1", "30 0.03")
    with WorkerProcess(fleet_env(alias)) as worker:
        streaming(ref)
        worker.signal()
        worker.wait_for("stopping")
        submit(later, "q1", "1 0")
        assert worker.wait() == 0
    assert turn_of(ref).status is TurnStatus.COMPLETED
    assert reply(ref) == words(30)
    assert turn_of(later).status is TurnStatus.QUEUED


@pytest.mark.parametrize("how", ["grace", "second signal"])
def test_what_is_given_back_goes_on_in_another_worker_at_once(
    alias: str, how: str
) -> None:
    # The lease is a minute: only a worker that gave it back lets it go on.
    env = fleet_env(alias, lease=60.0)
    ref = room("counting")
    options = ["--grace", "0.1" if how == "grace" else "60"]
    with ExitStack() as stack:
        workers = start_workers(env, options, 2, stack)
        submit(ref, "q1", "50 0.05")
        streaming(ref)
        (running,) = until(
            lambda: [worker for worker in workers if "running=1" in worker.log()],
            lambda found: found,
        )
        running.signal()
        if how != "grace":
            running.wait_for("stopping")
            running.signal(signal.SIGINT)
        assert running.wait() == 0
        turn = ended(ref)
    assert turn.status is TurnStatus.COMPLETED
    assert turn.attempt == 2
    assert reply(ref) == words(50)


def test_a_worker_that_was_killed_is_replaced_within_lease_and_sweep(
    alias: str,
) -> None:
    env = fleet_env(alias, lease=1.0)
    ref, careless = room("counting"), room("careless")
    submit(ref, "q1", "60 0.05")
    submit(careless, "q1", "60 0.05")
    with WorkerProcess(env) as first:
        streaming(ref)
        streaming(careless)
        first.kill()
    died = time.monotonic()
    with WorkerProcess(env):
        assert ended(careless).status is TurnStatus.ERRORED
        # Lease and sweep interval, and what a worker needs to start.
        assert time.monotonic() - died < 1.0 + 0.2 + 8.0
        assert ended(ref).status is TurnStatus.COMPLETED
    assert reply(ref) == words(60)
    partial = reply(careless)
    assert partial and words(60).startswith(partial)


ROOMS = 50
TURNS = 20
CLAIMERS = 8


def queue_many(alias: str) -> None:
    """Twenty turns in each of fifty rooms, without a submit for each."""
    for at in range(ROOMS):
        pk = conversations.ensure(room("noted", f"room{at}"))
        now = clock.now(alias)
        Turn.objects.using(alias).bulk_create(
            Turn(
                conversation_id=pk,
                request_id=f"q{number}",
                request_key=ids.hash_key(f"q{number}"),
                position=number,
                created_at=now,
            )
            for number in range(TURNS)
        )
        Conversation.objects.using(alias).filter(pk=pk).update(turn_cursor=TURNS)


async def claim_all(ready: Ready, notes: str) -> int:
    """A worker, until everything has run; how many turns it ran."""
    agents.discover()
    await asyncio.to_thread(ready)
    worker = Worker(["noted"], concurrency=3, grace=10.0)
    working = asyncio.create_task(worker.run())
    while len(read_notes(Path(notes))) < ROOMS * TURNS and not working.done():
        await asyncio.sleep(0.05)
    worker.stop()
    await working
    return (await worker.health()).finished


@pytest.mark.timeout(120)
def test_eight_claimers_run_a_thousand_turns_once_and_in_order(
    alias: str, tmp_path: Path
) -> None:
    """By whole runs: what ran, and in which order, the handlers have noted."""
    notes = tmp_path / "notes"
    notes.touch()
    # A slow disk decides how long a commit takes, not who is first; and no lease
    # lapses, for what is not renewed in time runs again.
    env = fleet_env(
        alias,
        lease=60.0,
        DS_FLEET_NOTES=str(notes),
        PGOPTIONS="-c synchronous_commit=off",
    )
    queue_many(alias)
    with Brood(env) as brood:
        jobs = [(claim_all, {"notes": str(notes)})] * CLAIMERS
        shares = brood.run(*jobs, timeout=55)
    assert sum(shares) == ROOMS * TURNS
    assert sum(share > 0 for share in shares) > 1
    runs = read_notes(notes)
    assert len(runs) == len(set(runs)) == ROOMS * TURNS
    for at in range(ROOMS):
        mine = [request for name, request in runs if name == f"room{at}"]
        assert mine == [f"q{number}" for number in range(TURNS)]
    left = queue.turns().values_list("status", "attempt").distinct()
    assert list(left) == [("completed", 1)]


def test_a_worker_settles_what_a_dead_producer_left(alias: str) -> None:
    streams = Streams(using=alias)
    writer = streams.open("left", lease=0.2)
    writer.append("last words")
    # Nobody holds it, so nothing renews its lease.
    del writer
    with WorkerProcess(fleet_env(alias)):
        left = until(lambda: streams.status("left"), lambda s: s.state != "streaming")
    assert (left.state, left.error, left.cursor) == ("errored", "interrupted", 1)


def test_an_agent_that_is_not_there_is_named(alias: str) -> None:
    worker = WorkerProcess(fleet_env(alias), "--agent", "nobody")
    try:
        assert worker.wait() == 1
        assert "no agent is called nobody; known: careless, counting" in worker.log()
    finally:
        worker.__exit__(None, None, None)


def test_a_turn_of_a_process_without_a_loop_is_run_by_a_worker(alias: str) -> None:
    """In-process agents too: whoever is there runs what waits."""
    ref = room("counting")
    with WorkerProcess(fleet_env(alias, runner="inprocess")):
        submit(ref, "q1", "3 0")
        assert ended(ref).status is TurnStatus.COMPLETED
    assert door.alias() == alias
