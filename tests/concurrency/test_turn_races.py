"""Submits, ends and stops of several processes at the same instant."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from django_streams import Streams
from django_streams.turns import conversations, queue, transcript
from django_streams.turns.records import ConversationRef, EventKind
from tests.conftest import RealDb
from tests.integration.chatting import message_text
from tests.process import Child

from .brood import Brood, Job
from .racing import (
    OWNER,
    RIVALS,
    Stubborn,
    finish_turns,
    room,
    serve,
    stop_turns,
    submit_at_once,
)

ALIASES = [
    "default",
    pytest.param("postgresql", marks=pytest.mark.needs("postgresql")),
    pytest.param("mariadb", marks=pytest.mark.needs("mariadb")),
]
POSTGRESQL = pytest.mark.needs("postgresql")


@pytest.fixture
def brood() -> Iterator[Brood]:
    # A slow disk decides how long a commit takes, not who is first.
    with Brood(env={"PGOPTIONS": "-c synchronous_commit=off"}) as brood:
        yield brood


@pytest.fixture
def on(real_db: RealDb, settings: Settings) -> Any:
    """Use an alias here as the children do."""

    def use(alias: str) -> str:
        real_db("default")
        settings.DJANGO_STREAMS = {"DATABASE": real_db(alias), "CHANNEL_LAYER": None}
        return alias

    return use


@pytest.mark.parametrize("alias", ALIASES)
def test_submits_at_the_same_instant_have_one_order_and_one_rule(
    on: Any, brood: Brood, tmp_path: Path, alias: str
) -> None:
    on(alias)
    names, rounds = ["queue", "latest", "merge", "debounce", "drop"], 3
    arguments = {"alias": alias, "folder": str(tmp_path), "names": names}
    jobs: list[Job] = [
        (submit_at_once, arguments | {"rounds": rounds, "number": number})
        for number in range(RIVALS)
    ]
    times = brood.run(*jobs)
    spread = [max(at) - min(at) for at in zip(*times, strict=True)]
    assert min(spread) < 0.005, spread
    wanted = {
        "queue": ["queued", "queued", "queued"],
        "drop": ["queued", "skipped", "skipped"],
    }
    for name in names:
        for at in range(rounds):
            ref = room(name, at)
            rows = queue.turns().filter(conversation__key=ref.key).order_by("position")
            found = list(rows.values_list("request_id", "position", "status"))
            assert [position for _, position, _ in found] == [0, 1, 2]
            states = [status for *_, status in found]
            assert states == wanted.get(name, ["queued", "skipped", "queued"])
            # All who follow are told in the order of the queue.
            events = conversations.events_after(ref.key, 0, 100)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            told = [e.body["turn"] for e in events if e.kind is EventKind.SUBMITTED]
            accepted = found[:1] if name == "drop" else found
            assert told == [request for request, *_ in accepted]
            pk = conversations.find(ref)
            assert pk is not None
            stored = [message["id"] for message in transcript.load(pk)]
            assert stored == [f"u{request[1:]}" for request in told]


@POSTGRESQL
def test_a_stop_in_the_instant_of_the_end_leaves_one_end_that_all_agree_on(
    on: Any, brood: Brood, tmp_path: Path
) -> None:
    alias = on("postgresql")
    lanes, rounds = 8, 25
    arguments = {
        "alias": alias,
        "tell": str(tmp_path / "instants"),
        "lanes": lanes,
        "rounds": rounds,
    }
    jobs: list[Job] = [(stop_turns, arguments), (finish_turns, arguments)]
    stopped, finished = brood.run(*jobs)
    run_as = {(where, name): status for where, name, status in finished}
    assert len(run_as) == len(stopped) == lanes * rounds
    streams = Streams(using=alias)
    outcomes: Counter[str] = Counter()
    for lane in range(lanes):
        ref = ConversationRef("racer", f"lane {lane}", OWNER)
        pk = conversations.find(ref)
        assert pk is not None
        ends: dict[str, list[str]] = {}
        for event in conversations.events_after(ref.key, 0, 10_000):
            if event.kind is EventKind.ENDED:
                ends.setdefault(event.body["turn"], []).append(event.body["status"])
        answers = {m["id"]: message_text(m) for m in transcript.load(pk)}
        for row in queue.turns().filter(conversation_id=pk):
            outcomes[row.status] += 1
            assert ends[row.request_id] == [row.status]
            assert run_as[ref.name, row.request_id] == row.status
            if row.stream:
                log = streams.status(row.stream)
                assert log is not None
                settled = ("completed", None), ("errored", "cancelled")
                assert (log.state, log.error) == settled[row.status == "aborted"]
            if row.status == "completed":
                assert answers[row.message_id] == "word"
    assert set(outcomes) == {"completed", "aborted"}, outcomes
    assert min(outcomes.values()) >= 20, outcomes
    for where, name, said in stopped:
        # What was over when it was stopped stays what it was.
        assert said in ("running", run_as[where, name])


@pytest.fixture
def chat(on: Any) -> Iterator[Any]:
    """A conversation whose turns another process runs, without a layer."""
    alias = on("postgresql")
    with Child(serve, alias=alias, sweep=0.2) as server:
        assert server.hear() == "ready"
        yield Stubborn.conversation("room", owner=OWNER)
        server.say("end")
        server.wait()


def until(chat: Any, request_id: str, *, begun: bool) -> None:
    """Wait until the other process runs it, up to its first word with *begun*."""
    end = time.monotonic() + 10
    rows = queue.turns().filter(request_id=request_id, status="running")
    if begun:
        rows = rows.exclude(stream="")
    while not rows.exists():
        assert time.monotonic() < end, chat.turn(request_id)
        time.sleep(0.01)


def took(request_id: str) -> float:
    """Seconds from the request to stop to the end, by the database's clock."""
    row = queue.turns().get(request_id=request_id)
    assert row.finished_at is not None and row.cancel_requested is not None
    return float((row.finished_at - row.cancel_requested).total_seconds())


@POSTGRESQL
@pytest.mark.parametrize("how", ["start", "stream", "swallow", "block"])
def test_a_turn_is_stopped_from_another_process_within_a_second(
    chat: Any, how: str
) -> None:
    chat.submit(how, request_id="q1")
    until(chat, "q1", begun=how != "start")
    chat.submit(how, request_id="q2")
    assert chat.stop("q2").status == "aborted", "what waits ends at once"
    assert chat.stop().status == "running"
    assert chat.wait_until_idle(timeout=10).status == "aborted"
    assert chat.turn("q1").status == chat.stop("q1").status == "aborted"
    assert took("q1") <= 1.0
    texts = [message_text(message) for message in chat.messages()]
    assert texts == [how, how] if how == "start" else [how, how, "said"]


@POSTGRESQL
def test_a_conversation_is_cleared_from_another_process_within_a_second(
    chat: Any,
) -> None:
    chat.submit("stream", request_id="q1")
    until(chat, "q1", begun=True)
    chat.submit("stream", request_id="q2")
    chat.clear()
    assert chat.turn("q2").status == "skipped"
    chat.wait_until_idle(timeout=10)
    assert chat.turn("q1").status == "aborted"
    assert took("q1") <= 1.0
    assert chat.messages() == []
    chat.clear()
    assert chat.messages() == []
