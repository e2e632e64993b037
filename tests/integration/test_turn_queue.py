"""The queue of a conversation is decided in the database."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import IntegrityError, connections
from django.test.utils import CaptureQueriesContext

from django_streams.models import ConversationEvent, Turn
from django_streams.turns import conversations, door, ends, lease, queue, status
from django_streams.turns.queue import Submission
from django_streams.turns.records import (
    ConversationRef,
    Ending,
    EventKind,
    Snapshot,
    TurnRecord,
    TurnStatus,
)

from .chatting import user_message

REF = ConversationRef("agent", "room", "u:1")
pytestmark = pytest.mark.usefixtures("chat_alias")


def submission(request_id: str, **members: Any) -> Submission:
    message = user_message("x", f"u-{request_id}")
    values: dict[str, Any] = {
        "request_id": request_id,
        "messages": [message],
        "origin_ids": [message["id"]],
    }
    return Submission(**values | members)


def submit(request_id: str, ref: ConversationRef = REF) -> queue.Submitted:
    return queue.submit(ref, submission(request_id))


def claim(message_id: str = "a1", lease_seconds: float = 60.0) -> TurnRecord | None:
    pk = conversations.find(REF)
    assert pk is not None
    return queue.claim(pk, message_id=message_id, lease=lease_seconds)


def lapsed_claim() -> TurnRecord:
    """A claimed turn whose lease is over, also by a clock that counts coarsely."""
    turn = claim(lease_seconds=0.0)
    assert turn is not None
    end = time.monotonic() + 10.0
    while not status.snapshot(REF).lapsed:
        assert time.monotonic() < end
    return turn


def finish(turn: TurnRecord, **members: Any) -> bool:
    values: dict[str, Any] = {"status": TurnStatus.COMPLETED} | members
    return ends.finish_alone(turn, REF.wake_key, Ending(**values))


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run *work* in *count* threads that start together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Any:
        try:
            barrier.wait(10)
            return work(number)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def events() -> list[EventKind]:
    return [event.kind for event in conversations.events_after(REF.key, 0, 100)]


def test_a_submit_stores_the_message_and_queues_a_turn() -> None:
    submitted = submit("q1")
    assert submitted.created
    assert submitted.turn.status is TurnStatus.QUEUED
    assert submitted.turn.origin_ids == ("u-q1",)
    assert events() == [EventKind.SUBMITTED]
    seen = status.snapshot(REF)
    assert seen.pending == "q1" and seen.active is None


@pytest.mark.parametrize("reads", [1, 2])
def test_a_turn_that_is_claimed_while_somebody_looks_is_never_in_neither_place(
    reads: int,
) -> None:
    submit("q1")
    left = [reads]

    def claimed(execute: Any, *query: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            assert claim() is not None
        return execute(*query)

    with connections[door.alias()].execute_wrapper(claimed):
        seen = status.snapshot(REF)
    assert left[0] <= 0
    assert seen.pending == "q1"


def test_the_same_request_at_the_same_time_is_one_turn() -> None:
    results = at_once(6, lambda number: submit("q1"))
    assert [r.created for r in results].count(True) == 1
    assert len({r.turn.pk for r in results}) == 1
    assert events() == [EventKind.SUBMITTED]


def test_a_request_id_is_a_conversation_s_own() -> None:
    other = ConversationRef("agent", "room", "u:2")
    assert submit("q1").created
    assert submit("q1", other).created


def test_of_many_claimers_one_runs_the_turn() -> None:
    submit("q1")
    submit("q2")
    claimed = at_once(6, lambda number: claim(f"a{number}"))
    (turn,) = [turn for turn in claimed if turn is not None]
    assert turn.request_id == "q1"
    assert (turn.status, turn.attempt, turn.epoch) == (TurnStatus.RUNNING, 1, 1)


def test_turns_run_one_at_a_time_and_first_come_first_served() -> None:
    for number in range(20):
        submit(f"q{number}")
    order: list[str] = []
    running = threading.Lock()

    def work(number: int) -> None:
        at = 0
        while len(order) < 20:
            at += 1
            turn = claim(f"a{number}-{at}")
            if turn is not None:
                assert running.acquire(blocking=False), "two turns ran at once"
                order.append(turn.request_id)
                running.release()
                assert finish(turn)

    at_once(4, work)
    assert order == [f"q{number}" for number in range(20)]


def test_a_claim_whose_answer_was_lost_is_found_again() -> None:
    submit("q1")
    first = claim("a1")
    assert first is not None
    assert claim("a1") == first
    assert claim("a2") is None


def test_the_database_refuses_a_second_running_turn() -> None:
    submit("q1")
    submit("q2")
    turn = claim()
    assert turn is not None
    second = queue.turns().get(request_id="q2")
    with pytest.raises(IntegrityError), door.atomic():
        queue.turns().filter(pk=second.pk).update(
            status="running", running_of=turn.conversation_pk
        )
    with pytest.raises(IntegrityError), door.atomic():
        queue.turns().filter(pk=second.pk).update(status="running")


def test_an_end_frees_the_place_and_is_told() -> None:
    submit("q1")
    submit("q2")
    turn = claim()
    assert turn is not None
    message = {"id": "a1", "role": "assistant", "parts": []}
    assert finish(turn, message=message)
    assert not finish(turn), "a turn ends once"
    assert events()[-1] is EventKind.ENDED
    following = claim("a2")
    assert following is not None and following.request_id == "q2"


def test_an_end_is_undone_with_its_transaction() -> None:
    submit("q1")
    turn = claim()
    assert turn is not None
    with pytest.raises(RuntimeError), door.atomic():
        ends.finish(turn, REF.wake_key, Ending(status=TurnStatus.COMPLETED))
        raise RuntimeError
    assert status.snapshot(REF).running is not None
    assert EventKind.ENDED not in events()


def test_events_are_numbered_in_the_order_of_their_commits() -> None:
    at_once(6, lambda number: [submit(f"q{number}-{at}") for at in range(5)])
    numbers = [e.seq for e in conversations.events_after(REF.key, 0, 100)]
    assert numbers == list(range(1, 31))
    positions = queue.turns().order_by("position").values_list("position", flat=True)
    assert list(positions) == list(range(30))


def test_events_are_read_in_pages() -> None:
    for number in range(5):
        submit(f"q{number}")
    first = conversations.events_after(REF.key, 0, 2)
    assert [event.seq for event in first] == [1, 2]
    assert [e.seq for e in conversations.events_after(REF.key, 2, 9)] == [3, 4, 5]
    assert conversations.events_after("unknown", 0, 9) == []


def test_a_renewal_extends_the_lease_and_tells_of_a_stop() -> None:
    submit("q1")
    turn = lapsed_claim()
    assert lease.renew(turn, 60.0) is False
    assert not status.snapshot(REF).lapsed
    ends.cancel(REF, "q1")
    ends.cancel(REF, "q1")
    assert lease.renew(turn, 60.0) is True
    assert events().count(EventKind.CANCEL) == 1


def test_a_runner_learns_how_its_turn_stands_without_a_write() -> None:
    submit("q1")
    turn = claim(lease_seconds=30.0)
    assert turn is not None
    with CaptureQueriesContext(connections[door.alias()]) as asked:
        seen = lease.standing(turn)
    assert [query["sql"].split()[0] for query in asked] == ["SELECT"]
    assert not seen.stop and 0 < seen.left <= 30.0
    ends.cancel(REF, "q1")
    assert lease.standing(turn).stop
    assert finish(turn)
    with pytest.raises(queue.Lost):
        lease.standing(turn)


def test_only_one_takes_a_lapsed_turn_over() -> None:
    submit("q1")
    turn = lapsed_claim()
    taken = at_once(4, lambda n: lease.take_over(REF, turn, 60.0, f"r{n}"))
    (mine,) = [one.turn for one in taken if one is not None]
    assert mine.epoch == turn.epoch + 1
    with pytest.raises(queue.Lost):
        lease.renew(turn, 60.0)
    assert not finish(turn)
    assert finish(mine)


def test_a_turn_that_was_renewed_in_time_is_not_taken_over() -> None:
    submit("q1")
    turn = lapsed_claim()
    lease.renew(turn, 60.0)
    assert lease.take_over(REF, turn, 60.0, "r") is None


def test_stopping_a_queued_turn_ends_it_there() -> None:
    submit("q1")
    ends.cancel(REF, "q1")
    assert claim() is None
    assert status.find_turn(REF, "q1").status is TurnStatus.ABORTED  # type: ignore[union-attr]
    assert status.snapshot(REF).pending is None


def test_a_stop_reaches_a_turn_that_is_claimed_at_the_same_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submit("q1")

    def by_request(*arguments: Any) -> TurnRecord | None:
        found = queue.by_request(*arguments)
        assert claim() is not None
        return found

    monkeypatch.setattr(ends, "by_request", by_request)
    ends.cancel(REF, "q1")
    running = status.snapshot(REF).running
    assert running is not None and running.cancel_requested
    assert events() == [EventKind.SUBMITTED, EventKind.CANCEL]


def test_clearing_skips_what_waits_and_stops_what_runs() -> None:
    for number in range(3):
        submit(f"q{number}")
    turn = claim()
    assert turn is not None
    ends.clear(REF)
    assert lease.renew(turn, 60.0) is True
    assert ends.outdated(turn)
    message = {"id": "a1", "role": "assistant", "parts": []}
    assert finish(turn, status=TurnStatus.ABORTED, message=message)
    from django_streams.turns import transcript

    assert transcript.texts(REF) == []
    assert claim("a9") is None
    statuses = queue.turns().order_by("position").values_list("status", flat=True)
    assert list(statuses) == ["aborted", "skipped", "skipped"]
    submit("q9")
    fresh = claim("a10")
    assert fresh is not None and not ends.outdated(fresh)


def test_a_failed_turn_is_remembered_until_the_next_submit() -> None:
    submit("q1")
    turn = claim()
    assert turn is not None
    finish(turn, status=TurnStatus.ERRORED, error="kaput")
    failed = status.snapshot(REF).failed
    assert failed is not None and failed.error == "kaput"
    submit("q2")
    assert status.snapshot(REF).failed is None


def test_what_is_not_there_is_an_empty_conversation() -> None:
    nowhere = ConversationRef("agent", "nowhere", "u:1")
    assert status.snapshot(nowhere) == Snapshot()
    assert status.find_turn(nowhere, "q1") is None
    assert ends.cancel(nowhere, "q1") is None
    assert ends.clear(nowhere) is None
    assert conversations.find(nowhere) is None
    assert not Turn.objects.using(door.alias()).exists()
    assert not ConversationEvent.objects.using(door.alias()).exists()
