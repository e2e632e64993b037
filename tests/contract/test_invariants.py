"""The rules of the database, each broken once by hand."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_streams import Streams
from django_streams.checks import check_backlog
from django_streams.models import ChunkBlock, ConversationEvent, Message, Stream, Turn
from django_streams.turns import (
    clock,
    conversations,
    ends,
    invariants,
    queue,
)
from django_streams.turns.policy import REGENERATE, SUBMIT
from django_streams.turns.queue import Submission
from django_streams.turns.records import (
    ConversationRef,
    Ending,
    TurnRecord,
    TurnStatus,
)
from tests.conftest import RealDb

REF = ConversationRef("agent", "room", "u:1")


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


def broken(grace: float = 0.0) -> set[str]:
    return {one.rule for one in invariants.violations(grace=grace)}


def submit(request_id: str = "q1") -> None:
    parts = [{"type": "text", "text": "x"}]
    message = {"id": f"u-{request_id}", "role": "user", "parts": parts}
    given = Submission(
        request_id=request_id, messages=[message], origin_ids=[f"u-{request_id}"]
    )
    queue.submit(REF, given)


def claim(message_id: str = "a1") -> TurnRecord:
    pk = conversations.find(REF)
    assert pk is not None
    turn = queue.claim(pk, message_id=message_id, lease=60.0)
    assert turn is not None
    return turn


def spoken(
    alias: str, status: TurnStatus = TurnStatus.COMPLETED, request_id: str = "q1"
) -> None:
    """A turn that said something and ended as it should."""
    submit(request_id)
    turn = claim()
    stream = f"s-{request_id}"
    writer = Streams(using=alias).open(stream, lease=60)
    writer.extend([{"type": "text-delta", "id": "t", "delta": "w"}] * 5)
    Turn.objects.using(alias).filter(pk=turn.pk).update(stream=stream)
    writer.close()
    message = {"id": "a1", "role": "assistant", "parts": []}
    assert ends.finish_alone(turn, REF.wake_key, Ending(status=status, message=message))


def test_what_ended_as_it_should_breaks_no_rule(alias: str) -> None:
    assert broken() == set()
    spoken(alias)
    submit("q2")
    assert broken() == set()
    out = StringIO()
    call_command("check_streams", stdout=out)
    assert "all is as it must be; 0 turns run, 1 wait" in out.getvalue()


def test_a_stream_without_a_live_lease(alias: str) -> None:
    writer = Streams(using=alias).open("s1", lease=60)
    assert broken() == set()
    rows = Stream.objects.using(alias).filter(stream_id=writer.stream_id)
    rows.update(lease_expires_at=clock.ago(alias, 1.0))
    assert broken() == {"stream-lease"}
    assert broken(grace=3600.0) == set()


def test_a_turn_without_a_live_lease(alias: str) -> None:
    submit()
    turn = claim()
    assert broken() == set()
    rows = Turn.objects.using(alias).filter(pk=turn.pk)
    rows.update(lease_expires_at=clock.ago(alias, 1.0))
    assert broken() == {"turn-lease"}
    with pytest.raises(CommandError, match="1 things"):
        call_command("check_streams", "--grace", "0", stdout=StringIO())


@pytest.mark.parametrize(
    "status", [TurnStatus.COMPLETED, TurnStatus.ABORTED, TurnStatus.ERRORED]
)
def test_a_turn_that_spoke_and_has_no_message(alias: str, status: TurnStatus) -> None:
    spoken(alias, status)
    Turn.objects.using(alias).update(message_id="another")
    assert broken() == {"turn-message"}


def replaced_by(what: str) -> None:
    """Do away with the answer of ``spoken`` in an ordinary way."""
    question = {"id": "u-q1", "role": "user", "parts": [{"type": "text", "text": what}]}
    new = question | {"id": "u-q2"}
    match what:
        case "regenerate" | "edit":
            trigger = REGENERATE if what == "regenerate" else SUBMIT
            given = Submission(
                request_id="q2",
                messages=[question],
                origin_ids=["u-q1"],
                trigger=trigger,
            )
            queue.submit(REF, given)
        case "a limit at a submit":
            given = Submission(
                request_id="q2", messages=[new], origin_ids=["u-q2"], keep_messages=1
            )
            queue.submit(REF, given)
        case "a limit at a sync":
            queue.sync_messages(REF, [new], keep_messages=1)
        case "a limit at an end":
            submit("q2")
            ending = Ending(
                status=TurnStatus.COMPLETED,
                message={"id": "a2", "role": "assistant", "parts": []},
                keep_messages=1,
            )
            assert ends.finish_alone(claim(message_id="a2"), REF.wake_key, ending)
        case "a clear":
            ends.clear(REF)


@pytest.mark.parametrize(
    "what",
    [
        "regenerate",
        "edit",
        "a limit at a submit",
        "a limit at a sync",
        "a limit at an end",
        "a clear",
    ],
)
def test_an_answer_that_was_replaced_breaks_no_rule_and_one_that_is_lost_does(
    alias: str, what: str
) -> None:
    spoken(alias)
    replaced_by(what)
    messages = Message.objects.using(alias).filter(message_id="a1")
    assert not messages.exists()
    assert broken() == set()
    # The next one is another turn's, and nobody has deleted it.
    Turn.objects.using(alias).exclude(request_id="q1").delete()
    spoken(alias, request_id="q3")
    assert broken() == set()
    messages.delete()
    assert broken() == {"turn-message"}


def test_a_turn_that_ended_and_whose_stream_did_not(alias: str) -> None:
    spoken(alias)
    Stream.objects.using(alias).update(
        state="streaming",
        closed_at=None,
        lease_expires_at=clock.after(alias, 60),
    )
    assert broken() == {"turn-stream"}


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_a_gap_in_a_log(alias: str, seq: int) -> None:
    writer = Streams(using=alias).open("s1", lease=60)
    for number in range(3):
        writer.append(number)
    assert broken() == set()
    ChunkBlock.objects.using(alias).filter(seq_from=seq).delete()
    assert broken() == {"log-gap"}
    ChunkBlock.objects.using(alias).all().delete()
    assert broken() == {"log-gap"}


def test_a_gap_between_events(alias: str) -> None:
    for number in range(4):
        submit(f"q{number}")
    events = ConversationEvent.objects.using(alias)
    # What gc trims is the oldest.
    events.filter(seq=1).delete()
    assert broken() == set()
    events.filter(seq=3).delete()
    assert broken() == {"event-gap"}


def test_a_turn_that_waits_too_long_is_told_by_check_and_command(alias: str) -> None:
    submit()
    assert check_backlog(None, databases=[alias]) == []
    Turn.objects.using(alias).update(created_at=clock.ago(alias, 60.0))
    (warning,) = check_backlog(None, databases=[alias])
    assert warning.id == "django_streams.W009"
    assert check_backlog(None, databases=[]) == []
    out = StringIO()
    with pytest.raises(CommandError):
        call_command("check_streams", stdout=out)
    assert "1 turns wait" in out.getvalue()
    claim()
    assert check_backlog(None, databases=[alias]) == []
