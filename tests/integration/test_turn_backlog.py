"""One question to the database tells what waits and what was left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from django_streams.turns import backlog, clock, conversations, door, ends, lease, queue
from django_streams.turns.queue import Submission
from django_streams.turns.records import (
    ConversationRef,
    Ending,
    TurnRecord,
    TurnStatus,
)
from tests.conftest import RealDb

from .chatting import user_message

AGENT = "agent"
OTHER = "other-agent"


@pytest.fixture(
    autouse=True,
    params=[
        "default",
        pytest.param("postgresql", marks=pytest.mark.needs("postgresql")),
        pytest.param("mariadb", marks=pytest.mark.needs("mariadb")),
    ],
)
def alias(
    request: pytest.FixtureRequest, real_db: RealDb, settings: Any
) -> Iterator[str]:
    real_db("default")
    name = real_db(request.param)
    settings.DJANGO_STREAMS = {"DATABASE": name}
    yield name


def room(name: str, agent: str = AGENT) -> ConversationRef:
    return ConversationRef(agent, name, "u:1")


def submit(ref: ConversationRef, request_id: str) -> None:
    message = user_message("x", f"u-{request_id}")
    given = Submission(request_id=request_id, messages=[message], origin_ids=["u"])
    queue.submit(ref, given)
    tick()


def claim(ref: ConversationRef, seconds: float = 60.0) -> TurnRecord:
    pk = conversations.find(ref)
    assert pk is not None
    turn = queue.claim(pk, message_id=f"a-{ref.name}", lease=seconds)
    assert turn is not None
    tick()
    return turn


def tick() -> None:
    """Return once the database's clock, which may count coarsely, has moved on."""
    now = clock.ago(door.alias(), 0)
    end = time.monotonic() + 10.0
    while clock.ago(door.alias(), 0) == now:
        assert time.monotonic() < end


def finish(ref: ConversationRef, turn: TurnRecord) -> None:
    ending = Ending(status=TurnStatus.COMPLETED)
    assert ends.finish_alone(turn, ref.wake_key, ending)


def waiting(*agents: str, **options: Any) -> list[str]:
    options = {"limit": 100} | options
    return [one.ref.name for one in backlog.look(agents, [], **options).waiting]


def lapsed(*agents: str, limit: int = 100) -> list[str]:
    return [one.ref.name for one in backlog.look([], agents, limit=limit).lapsed]


def test_an_empty_database_has_no_backlog() -> None:
    assert waiting(AGENT) == lapsed(AGENT) == []
    assert backlog.look([], [], limit=10) == backlog.Look()
    assert backlog.measure([AGENT]) == backlog.Backlog(0, 0, None)


def test_conversations_wait_in_the_order_of_their_oldest_turn() -> None:
    for name in ("c", "a", "b"):
        submit(room(name), "q1")
    submit(room("c"), "q2")
    assert waiting(AGENT) == ["c", "a", "b"]
    assert waiting(AGENT, limit=2) == ["c", "a"]


def test_a_long_queue_lets_others_pass_after_each_of_its_turns() -> None:
    for number in range(3):
        submit(room("flood"), f"q{number}")
    submit(room("single"), "q1")
    assert waiting(AGENT) == ["flood", "single"]
    turn = claim(room("flood"))
    finish(room("flood"), turn)
    assert waiting(AGENT) == ["single", "flood"]


def test_a_conversation_with_a_running_turn_does_not_wait() -> None:
    submit(room("busy"), "q1")
    submit(room("busy"), "q2")
    claim(room("busy"))
    assert waiting(AGENT) == []
    measured = backlog.measure([AGENT])
    assert (measured.queued, measured.running, measured.oldest) == (1, 1, None)


def test_only_what_was_asked_for_is_seen() -> None:
    submit(room("mine"), "q1")
    submit(room("theirs", OTHER), "q1")
    assert waiting(AGENT) == ["mine"]
    assert sorted(waiting(AGENT, OTHER)) == ["mine", "theirs"]
    assert backlog.measure([AGENT]).queued == 1


def test_what_is_young_can_be_left_to_who_took_it() -> None:
    submit(room("young"), "q1")
    assert waiting(AGENT, older_than=3600.0) == []
    assert waiting(AGENT, older_than=0.0) == ["young"]


def test_a_turn_waits_from_the_time_that_it_was_put_off_to() -> None:
    submit(room("later"), "q1")
    mine = queue.turns().filter(request_id="q1")
    mine.update(not_before=clock.after(door.alias(), 3600))
    assert waiting(AGENT) == []
    assert backlog.measure([AGENT]).oldest is None
    mine.update(not_before=clock.now(door.alias()))
    assert waiting(AGENT) == ["later"]


def test_a_lapsed_turn_is_found_with_its_conversation() -> None:
    for name in ("gone", "alive"):
        submit(room(name), "q1")
    gone = claim(room("gone"), seconds=0.0)
    claim(room("alive"))
    assert lapsed(AGENT) == ["gone"]
    assert lapsed(OTHER) == []
    finish(room("gone"), gone)
    assert lapsed(AGENT) == []


def test_both_are_one_question() -> None:
    submit(room("gone"), "q1")
    claim(room("gone"), seconds=0.0)
    submit(room("new"), "q1")
    look = backlog.look([AGENT], [AGENT], limit=10)
    assert [one.ref for one in look.waiting] == [room("new")]
    assert [one.ref for one in look.lapsed] == [room("gone")]


def test_a_released_turn_has_lapsed_at_once_and_only_its_runner_releases_it() -> None:
    submit(room("given"), "q1")
    turn = claim(room("given"))
    assert lapsed(AGENT) == []
    assert lease.release(turn, free=True)
    assert lapsed(AGENT) == ["given"]
    with pytest.raises(queue.Lost):
        lease.renew(turn, 60.0)
    assert not lease.release(turn, free=True)
    given = queue.by_request(turn.conversation_pk, "q1")
    assert given is not None
    assert lease.take_over(room("given"), given, 60.0, "me") is not None
    assert lapsed(AGENT) == []


def test_the_oldest_turn_that_waits_has_an_age() -> None:
    submit(room("old"), "q1")
    oldest = backlog.measure([AGENT]).oldest
    assert oldest is not None and 0 <= oldest < 60
