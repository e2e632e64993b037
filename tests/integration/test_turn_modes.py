"""What overlapping submits do is decided in the database, in one order for all."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.turns import conversations, ends, queue, status, transcript
from django_streams.turns.policy import Concurrency, Debounce
from django_streams.turns.records import EventKind, TurnStatus

from .chatting import user_message
from .test_turn_queue import REF, at_once, claim, finish, submission

pytestmark = pytest.mark.usefixtures("chat_alias")

FAR = Debounce(3600)
OVERTAKING: list[Concurrency] = ["latest", "merge", Debounce(0)]
ALL: list[Concurrency] = ["queue", *OVERTAKING, "drop"]


def submit(request_id: str, mode: Concurrency, **members: Any) -> queue.Submitted:
    return queue.submit(REF, submission(request_id, concurrency=mode, **members))


def statuses() -> dict[str, str]:
    rows = queue.turns().order_by("position")
    return dict(rows.values_list("request_id", "status"))


def stored_ids() -> list[str]:
    pk = conversations.find(REF)
    assert pk is not None
    return [message["id"] for message in transcript.load(pk)]


@pytest.mark.parametrize("mode", ALL)
def test_the_first_of_many_runs_whatever_comes_before_it_is_claimed(
    mode: Concurrency,
) -> None:
    submit("q1", mode)
    submit("q2", mode)
    submit("q3", mode)
    turn = claim()
    assert turn is not None and turn.request_id == "q1"


@pytest.mark.parametrize("mode", OVERTAKING)
def test_the_newest_overtakes_those_that_wait_and_no_other(mode: Concurrency) -> None:
    submit("q1", mode)
    turn = claim()
    assert turn is not None
    submit("q2", mode)
    submit("q3", mode)
    submit("q4", mode)
    assert statuses() == {
        "q1": "running",
        "q2": "skipped",
        "q3": "skipped",
        "q4": "queued",
    }
    finish(turn)
    following = claim("a2")
    assert following is not None and following.request_id == "q4"


@pytest.mark.parametrize("mode", OVERTAKING)
def test_what_waits_in_line_is_not_overtaken(mode: Concurrency) -> None:
    submit("q1", mode)
    claim()
    submit("r", mode, trigger="regenerate-message")
    submit("q2", mode)
    submit("q3", mode)
    assert statuses()["r"] == "queued"
    assert statuses()["q2"] == "skipped"


def test_a_regeneration_waits_in_line_also_where_submits_are_dropped() -> None:
    submit("q1", "drop")
    claim()
    assert submit("r", "drop", trigger="regenerate-message").turn.status == "queued"
    assert submit("q2", "drop").turn.status is TurnStatus.SKIPPED


@pytest.mark.parametrize("mode", ["latest", Debounce(0)])
def test_messages_of_those_that_were_overtaken_stay(mode: Concurrency) -> None:
    for at in (1, 2, 3):
        submit(f"q{at}", mode)
    assert stored_ids() == ["u-q1", "u-q2", "u-q3"]


def test_a_dropped_submit_stores_nothing_and_tells_nobody() -> None:
    submit("q1", "drop")
    dropped = submit("q2", "drop")
    assert dropped.created and dropped.turn.status is TurnStatus.SKIPPED
    assert dropped.turn.origin_ids == ("u-q2",)
    assert stored_ids() == ["u-q1"]
    events = conversations.events_after(REF.key, 0, 100)
    assert [event.body["turn"] for event in events] == ["q1"]
    turn = claim()
    assert turn is not None
    finish(turn)
    # Sent again, it is not run either: it has its answer.
    again = submit("q2", "drop")
    assert not again.created and again.turn.status is TurnStatus.SKIPPED
    assert claim("a2") is None


def test_an_error_is_remembered_behind_what_was_dropped() -> None:
    submit("q1", "drop")
    turn = claim()
    assert turn is not None
    submit("q2", "drop")
    finish(turn, status=TurnStatus.ERRORED, error="kaput")
    failed = status.snapshot(REF).failed
    assert failed is not None and failed.request_id == "q1"


def test_merged_messages_are_one_when_the_turn_runs() -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:,"}
    submit("q1", "merge")
    turn = claim()
    assert turn is not None
    first = user_message("one", "u-q2")
    first["parts"].append(image)
    submit("q2", "merge", messages=[first], origin_ids=["u-q2"])
    submit("q3", "merge", messages=[user_message("two", "u-q3")])
    submit("q4", "merge", messages=[user_message("three", "u-q4")])
    assert stored_ids() == ["u-q1", "u-q2", "u-q3", "u-q4"]
    finish(turn, message={"id": "a1", "role": "assistant", "parts": []})
    before = status.snapshot(REF).events
    assert claim("a2") is not None
    assert stored_ids() == ["u-q1", "u-q4", "a1"]
    pk = conversations.find(REF)
    assert pk is not None
    merged = transcript.load(pk)[1]
    text = {"type": "text", "text": "one\n\ntwo\n\nthree"}
    assert merged == {"id": "u-q4", "role": "user", "parts": [text, image]}
    (event,) = conversations.events_after(REF.key, before, 10)
    assert event.kind is EventKind.MESSAGES and event.body["connection"] == ""


def test_a_message_that_a_turn_answers_already_is_not_merged() -> None:
    submit("q1", "merge")
    turn = claim()
    assert turn is not None
    # The client has no answer yet, so both are at the end of its list.
    both = [user_message("x", "u-q1"), user_message("y", "u-q2")]
    submit("q2", "merge", messages=both, origin_ids=["u-q1", "u-q2"])
    finish(turn)
    assert claim("a2") is not None
    assert stored_ids() == ["u-q1", "u-q2"]


def test_a_merged_message_that_was_deleted_meanwhile_is_left_out() -> None:
    submit("q1", "merge")
    turn = claim()
    assert turn is not None
    submit("q2", "merge")
    submit("q3", "merge")
    pk = conversations.find(REF)
    kept = [user_message("x", "u-q1"), user_message("x", "u-q3")]
    submit("r", "merge", messages=kept, trigger="regenerate-message")
    finish(turn)
    assert pk is not None and claim("a2") is not None
    assert stored_ids() == ["u-q1", "u-q3"]


def test_a_debounced_turn_waits_by_the_database_s_clock() -> None:
    submit("q1", FAR)
    turn = claim()
    assert turn is not None
    submit("q2", FAR)
    finish(turn)
    assert claim("a2") is None
    due = queue.due_in(turn.conversation_pk)
    assert due is not None and 3590 < due <= 3600
    submit("q3", Debounce(0))
    assert statuses()["q2"] == "skipped"
    assert queue.due_in(turn.conversation_pk) == 0.0
    following = claim("a3")
    assert following is not None and following.request_id == "q3"
    assert queue.due_in(turn.conversation_pk) is None


def test_what_is_behind_a_debounced_turn_waits_with_it() -> None:
    submit("q1", FAR)
    turn = claim()
    assert turn is not None
    submit("q2", FAR)
    submit("r", FAR, trigger="regenerate-message")
    finish(turn)
    assert claim("a2") is None
    ends.cancel(REF, "q2")
    following = claim("a3")
    assert following is not None and following.request_id == "r"


@pytest.mark.parametrize("mode", ALL)
def test_after_a_clear_the_next_submit_overlaps_nothing(mode: Concurrency) -> None:
    submit("q1", mode)
    turn = claim()
    assert turn is not None
    ends.clear(REF)
    assert submit("q2", mode).turn.status is TurnStatus.QUEUED
    finish(turn, status=TurnStatus.ABORTED)
    following = claim("a2")
    assert following is not None and following.request_id == "q2"


@pytest.mark.parametrize("mode", ALL)
def test_of_submits_at_the_same_time_exactly_one_overlaps_nothing(
    mode: Concurrency,
) -> None:
    at_once(6, lambda number: submit(f"q{number}", mode))
    found = list(statuses().values())
    waiting = {"queue": 6, "drop": 1}.get(str(mode), 2)
    assert found.count("queued") == waiting
    assert found.count("skipped") == 6 - waiting
    if mode != "drop":
        # The last one accepted is never skipped.
        assert found[-1] == "queued"


def test_the_oldest_messages_beyond_the_limit_go_with_each_store() -> None:
    submit("q1", "queue", keep_messages=2)
    submit("q2", "queue", keep_messages=2)
    submit("q3", "queue", keep_messages=2)
    assert stored_ids() == ["u-q2", "u-q3"]
    turn = claim()
    assert turn is not None
    message = {"id": "a1", "role": "assistant", "parts": []}
    finish(turn, message=message, keep_messages=2)
    assert stored_ids() == ["u-q3", "a1"]
    queue.sync_messages(REF, [user_message("x", "u9")], keep_messages=1)
    assert stored_ids() == ["u9"]
    queue.sync_messages(REF, [user_message("x", "u10")])
    assert stored_ids() == ["u9", "u10"]


def test_a_limit_takes_away_any_number_of_messages_at_once() -> None:
    many = [user_message("x", f"u{number}") for number in range(1200)]
    queue.sync_messages(REF, many)
    queue.sync_messages(REF, [user_message("y", "last")], keep_messages=1)
    assert stored_ids() == ["last"]
