"""Of answers that are asked for again and again, one is kept: the last one."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.turns import (
    conversations,
    ends,
    invariants,
    orders,
    queue,
    transcript,
)
from django_streams.turns.orders import Order
from django_streams.turns.policy import CONTINUE, REGENERATE
from django_streams.turns.records import TurnRecord

from .chatting import user_message
from .test_turn_queue import REF, at_once, claim, finish, submission

pytestmark = pytest.mark.usefixtures("chat_alias")

QUESTION = user_message("x", "u-q1")


def again(request_id: str, *messages: dict[str, Any]) -> queue.Submitted:
    given = list(messages) or [QUESTION]
    members = {"messages": given, "origin_ids": [given[-1]["id"]]}
    return queue.submit(REF, submission(request_id, trigger=REGENERATE, **members))


def begun(message_id: str) -> TurnRecord:
    turn = claim(message_id)
    assert turn is not None
    return turn


def said(turn: TurnRecord) -> None:
    message = {"id": turn.message_id, "role": "assistant", "parts": []}
    assert finish(turn, message=message)


def answer(message_id: str) -> None:
    said(begun(message_id))


def ids() -> list[str]:
    pk = conversations.find(REF)
    assert pk is not None
    return [message["id"] for message in transcript.load(pk)]


def asked() -> None:
    queue.submit(REF, submission("q1"))


def kinds() -> list[str]:
    return [str(e.kind) for e in conversations.events_after(REF.key, 0, 100)]


def test_two_quick_ones_leave_the_second_answer() -> None:
    asked()
    answer("a1")
    again("r1")
    again("r2")
    answer("a2")
    # It stays until the next one begins.
    assert ids() == ["u-q1", "a2"]
    turn = begun("a3")
    assert ids() == ["u-q1"]
    assert kinds()[-2:] == ["ended", "messages"]
    said(turn)
    assert ids() == ["u-q1", "a3"]
    assert invariants.violations() == []


def test_clicks_at_the_same_time_leave_one_answer() -> None:
    asked()
    answer("a1")
    at_once(4, lambda number: again(f"r{number}"))
    for number in range(4):
        answer(f"b{number}")
    assert ids() == ["u-q1", "b3"]


def test_one_in_the_middle_of_a_reply_replaces_it_at_its_end() -> None:
    asked()
    turn = begun("a1")
    again("r1")
    said(turn)
    assert ids() == ["u-q1", "a1"]
    answer("a2")
    assert ids() == ["u-q1", "a2"]


def test_one_in_the_middle_of_a_continuation_replaces_its_message() -> None:
    asked()
    answer("a1")
    orders.place(REF, Order(request_id="c1", trigger=CONTINUE))
    turn = begun("new")
    assert turn.message_id == "a1"
    again("r1")
    said(turn)
    assert ids() == ["u-q1", "a1"]
    answer("a2")
    assert ids() == ["u-q1", "a2"]


def test_answers_to_earlier_questions_and_what_code_has_said_stay() -> None:
    asked()
    answer("a1")
    second = user_message("y", "u-q2")
    first = {"id": "a1", "role": "assistant", "parts": []}
    queue.submit(REF, submission("q2", messages=[QUESTION, first, second]))
    turn = begun("a2")
    again("r1", QUESTION, first, second)
    said(turn)
    told = user_message("by the way", "told") | {"role": "assistant"}
    queue.sync_messages(REF, [told], overwrite=True)
    answer("a3")
    assert ids() == ["u-q1", "a1", "u-q2", "told", "a3"]


def test_one_that_is_stopped_before_it_begins_replaces_nothing() -> None:
    asked()
    turn = begun("a1")
    again("r1")
    ends.cancel(REF, "r1")
    said(turn)
    assert claim("a2") is None
    assert ids() == ["u-q1", "a1"]


def test_a_message_that_came_later_keeps_its_own_answer() -> None:
    asked()
    turn = begun("a1")
    again("r1")
    queue.submit(REF, submission("q2", messages=[QUESTION, user_message("y", "u-q2")]))
    said(turn)
    answer("a2")
    answer("a3")
    assert ids() == ["u-q1", "u-q2", "a2", "a3"]


def test_a_continuation_in_line_ends_when_its_reply_is_gone() -> None:
    asked()
    answer("a1")
    first = {"id": "a1", "role": "assistant", "parts": []}
    second = user_message("y", "u-q2")
    queue.submit(REF, submission("q2", messages=[QUESTION, first, second]))
    answer("a2")
    orders.place(REF, Order(request_id="c1", trigger=CONTINUE))
    queue.turns().filter(request_id="c1").update(message_id="a2")
    again("r1", QUESTION, first, second)
    turn = begun("a3")
    assert turn.request_id == "r1"
    said(turn)
    assert ids() == ["u-q1", "a1", "u-q2", "a3"]
    assert claim("a4") is None
