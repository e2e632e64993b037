"""The decision tables of the resume handshake, one row after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from django_streams.chat.handshake import (
    Action,
    Follow,
    Handshake,
    Replay,
    Reply,
    Send,
    State,
)
from django_streams.turns.records import Snapshot, TurnRecord, TurnStatus

RUNNING = TurnRecord(
    pk=1,
    conversation_pk=1,
    request_id="q1",
    status=TurnStatus.RUNNING,
    position=0,
    attempt=1,
    trigger="submit-message",
    continuation=False,
    body=None,
    client_tools=None,
    generation=0,
    stream="s1",
    message_id="a1",
    origin_ids=("u1",),
    user_key="",
    epoch=1,
    error=None,
    cancel_requested=False,
)
STARTING = replace(RUNNING, stream="")
QUEUED = replace(STARTING, request_id="q2", status=TurnStatus.QUEUED)
DONE = replace(RUNNING, status=TurnStatus.COMPLETED)
FAILED = replace(RUNNING, status=TurnStatus.ERRORED, error="kaput")

IDLE = Snapshot(events=3)
ACTIVE = Snapshot(events=3, running=RUNNING)
PENDING = Snapshot(events=3, running=STARTING)
WAITING = Snapshot(events=3, running=RUNNING, queued=QUEUED)
BROKEN = Snapshot(events=3, failed=FAILED)

REPLY = Reply.of(RUNNING)


def ended(status: str, **members: Any) -> dict[str, Any]:
    return {
        "turn": "q1",
        "stream": "s1",
        "status": status,
        "origin": ["u1"],
        "error": None,
    } | members


def shown(actions: list[Action]) -> list[Any]:
    """The actions, with a frame as (type, id or probe, flags)."""
    told: list[Any] = []
    for action in actions:
        if not isinstance(action, Send):
            told.append(type(action).__name__)
            continue
        frame = json.loads(action.frame)
        kind = frame.pop("type").removeprefix("cf_agent_")
        frame.pop("messageIds", None)
        told.append((kind, frame))
    return told


def following() -> Handshake:
    handshake = Handshake()
    handshake.connected(ACTIVE)
    handshake.acked("q1", ACTIVE, None)
    return handshake


def live() -> Handshake:
    handshake = Handshake()
    handshake.connected(IDLE)
    handshake.started(REPLY)
    return handshake


def offered() -> Handshake:
    handshake = Handshake()
    handshake.connected(ACTIVE)
    return handshake


def parked() -> Handshake:
    handshake = Handshake()
    handshake.connected(PENDING)
    return handshake


@pytest.mark.parametrize(
    ("seen", "told", "state"),
    [
        (IDLE, [], State.UNOFFERED),
        (Snapshot(), [], State.UNOFFERED),
        (BROKEN, [], State.UNOFFERED),
        (ACTIVE, [("stream_resuming", {"id": "q1"})], State.OFFERED),
        (PENDING, [("stream_pending", {"id": "q1"})], State.PARKED),
        (WAITING, [("stream_resuming", {"id": "q1"})], State.OFFERED),
        (
            Snapshot(queued=QUEUED),
            [("stream_pending", {"id": "q2"})],
            State.PARKED,
        ),
    ],
)
def test_what_a_new_connection_is_told(
    seen: Snapshot, told: list[Any], state: State
) -> None:
    handshake = Handshake()
    assert shown(handshake.connected(seen)) == told
    assert handshake.state is state


@pytest.mark.parametrize(
    ("seen", "told", "state"),
    [
        (ACTIVE, ("stream_resuming", {"id": "q1", "probeId": "p"}), State.OFFERED),
        (
            BROKEN,
            ("stream_resuming", {"id": "q1", "probeId": "p"}),
            State.UNOFFERED,
        ),
        (PENDING, ("stream_pending", {"id": "q1", "probeId": "p"}), State.PARKED),
        (
            IDLE,
            ("stream_resume_none", {"reason": "idle", "probeId": "p"}),
            State.UNOFFERED,
        ),
    ],
)
def test_a_probe_gets_exactly_one_answer(
    seen: Snapshot, told: Any, state: State
) -> None:
    handshake = Handshake()
    handshake.connected(IDLE)
    assert shown(handshake.probed("p", seen)) == [told]
    assert handshake.state is state


@pytest.mark.parametrize("handshake", [following(), live()])
def test_a_probe_stops_the_chunks_until_the_offer_is_accepted(
    handshake: Handshake,
) -> None:
    told = shown(handshake.probed("p", ACTIVE))
    assert told == ["Unfollow", ("stream_resuming", {"id": "q1", "probeId": "p"})]
    assert handshake.state is State.OFFERED


def test_an_offer_is_repeated_however_often_it_is_asked_for() -> None:
    handshake = offered()
    for _ in range(3):
        assert shown(handshake.probed("p", ACTIVE))[-1][0] == "stream_resuming"


def test_accepting_a_live_reply_replays_and_follows_it() -> None:
    handshake = offered()
    assert handshake.acked("q1", ACTIVE, None) == [Follow(REPLY, replay=True)]
    assert handshake.state is State.FOLLOWING


def test_each_acceptance_gets_a_replay_of_its_own() -> None:
    handshake = following()
    assert handshake.acked("q1", ACTIVE, None) == [Follow(REPLY, replay=True)]


def test_accepting_another_id_changes_nothing_while_a_reply_is_written() -> None:
    handshake = offered()
    assert handshake.acked("other", ACTIVE, None) == []
    assert handshake.state is State.OFFERED


@pytest.mark.parametrize(
    ("turn", "seen", "told"),
    [
        (None, IDLE, [{"done": True, "body": "", "replay": True}]),
        (QUEUED, Snapshot(queued=QUEUED), []),
        (STARTING, PENDING, []),
        (
            replace(DONE, stream=""),
            IDLE,
            [{"done": True, "body": "", "replay": True}],
        ),
        (
            replace(DONE, status=TurnStatus.SKIPPED),
            IDLE,
            [{"done": True, "body": "", "replay": True, "outcome": "skipped"}],
        ),
        (
            FAILED,
            IDLE,
            [{"done": True, "body": "", "replay": True, "outcome": "error"}],
        ),
        (
            replace(FAILED, stream=""),
            Snapshot(failed=replace(FAILED, stream="")),
            [{"done": True, "body": "kaput", "error": True}],
        ),
    ],
)
def test_accepting_what_has_no_chunks_is_answered_by_its_end(
    turn: TurnRecord | None, seen: Snapshot, told: list[Any]
) -> None:
    request_id = "unknown" if turn is None else turn.request_id
    actions = Handshake().acked(request_id, seen, turn)
    assert shown(actions) == [
        ("use_chat_response", frame | {"id": request_id}) for frame in told
    ]


@pytest.mark.parametrize(
    ("turn", "seen", "last"),
    [
        (DONE, IDLE, {"replay": True, "body": ""}),
        (
            replace(DONE, status=TurnStatus.ABORTED),
            IDLE,
            {"replay": True, "outcome": "aborted", "body": ""},
        ),
        (FAILED, BROKEN, {"error": True, "body": "kaput"}),
    ],
)
def test_a_late_acceptance_replays_the_finished_reply(
    turn: TurnRecord, seen: Snapshot, last: dict[str, Any]
) -> None:
    (action,) = Handshake().acked("q1", seen, turn)
    assert isinstance(action, Replay)
    assert action.reply == REPLY
    (end,) = action.then
    assert isinstance(end, Send)
    frame = json.loads(end.frame)
    assert frame | last | {"done": True, "id": "q1"} == frame
    # A frame that says error must not say replay, and the reverse.
    assert ("error" in frame) != ("replay" in frame)


def test_a_connection_that_was_there_sees_a_reply_live_from_its_first_chunk() -> None:
    handshake = Handshake()
    handshake.connected(IDLE)
    assert handshake.started(REPLY) == [Follow(REPLY, replay=False)]
    assert handshake.state is State.FOLLOWING


def test_a_parked_connection_is_offered_the_reply_when_it_begins() -> None:
    handshake = parked()
    assert shown(handshake.started(REPLY)) == [("stream_resuming", {"id": "q1"})]
    assert handshake.state is State.OFFERED


@pytest.mark.parametrize("handshake", [offered(), following()])
def test_the_beginning_of_a_reply_that_is_known_is_no_news(
    handshake: Handshake,
) -> None:
    assert handshake.started(REPLY) == []


def test_an_observer_gets_the_transcript_before_the_terminal_frame() -> None:
    assert shown(live().ended(ended("completed"), waiting=False)) == [
        "Drain",
        "SendTranscript",
        ("use_chat_response", {"id": "q1", "body": "", "done": True}),
    ]


def test_who_asked_gets_no_transcript() -> None:
    handshake = Handshake()
    handshake.connected(IDLE)
    handshake.submitted("q1")
    handshake.started(REPLY)
    assert shown(handshake.ended(ended("completed"), waiting=False)) == [
        "Drain",
        ("use_chat_response", {"id": "q1", "body": "", "done": True}),
    ]


def test_who_asked_and_saw_another_reply_meanwhile_gets_the_transcript() -> None:
    """What it asked for may replace that reply, which the client shows again."""
    handshake = Handshake()
    handshake.connected(IDLE)
    handshake.submitted("q2")
    handshake.started(REPLY)
    handshake.ended(ended("completed"), waiting=True)
    handshake.submitted("q3")
    for request_id, told in (("q2", True), ("q3", False)):
        handshake.started(replace(REPLY, request_id=request_id, stream=request_id))
        actions = shown(
            handshake.ended(ended("completed", turn=request_id), waiting=False)
        )
        assert ("SendTranscript" in actions) is told
        last, members = actions[-1]
        assert (last, members["id"]) == ("use_chat_response", request_id)


def test_who_asked_and_did_not_accept_an_offer_gets_the_transcript() -> None:
    handshake = Handshake()
    handshake.connected(IDLE)
    handshake.submitted("q1")
    handshake.started(REPLY)
    handshake.probed("p", ACTIVE)
    told = shown(handshake.ended(ended("completed"), waiting=False))
    assert [t if isinstance(t, str) else t[0] for t in told] == [
        "SendTranscript",
        "use_chat_response",
    ]


def test_an_offer_that_was_not_accepted_ends_with_the_reply() -> None:
    handshake = offered()
    told = shown(handshake.ended(ended("completed"), waiting=False))
    assert [t if isinstance(t, str) else t[0] for t in told] == [
        "SendTranscript",
        "use_chat_response",
    ]
    assert handshake.state is State.UNOFFERED


def test_the_end_of_another_reply_does_not_withdraw_an_offer() -> None:
    handshake = offered()
    handshake.ended(ended("completed", turn="q0"), waiting=False)
    assert handshake.state is State.OFFERED


@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (ended("completed"), [{"done": True, "body": ""}]),
        (
            ended("completed", spoke=False),
            [
                {
                    "done": True,
                    "body": "No response was generated by the agent.",
                    "outcome": "completed",
                }
            ],
        ),
        (ended("aborted"), [{"done": True, "body": "", "outcome": "aborted"}]),
        (
            ended("errored", error="kaput"),
            [{"done": True, "body": "kaput", "error": True}],
        ),
        (
            ended("errored", error="boom", inBand=True),
            [
                {"done": False, "body": "boom", "error": True},
                {"done": True, "body": "", "outcome": "error"},
            ],
        ),
    ],
)
def test_how_each_end_is_told(
    body: dict[str, Any], frames: list[dict[str, Any]]
) -> None:
    told = [t for t in shown(live().ended(body, waiting=False)) if t[0] != "S"]
    assert [t[1] for t in told if not isinstance(t, str)] == [
        frame | {"id": "q1"} for frame in frames
    ]


def test_only_who_asked_hears_that_a_turn_was_skipped() -> None:
    assert live().ended(ended("skipped", turn="q2", stream=""), waiting=False) == []
    handshake = live()
    handshake.submitted("q2")
    told = shown(handshake.ended(ended("skipped", turn="q2", stream=""), waiting=False))
    assert told == [
        ("use_chat_response", {"id": "q2", "body": "", "done": True} | SKIPPED)
    ]


SKIPPED = {"outcome": "skipped"}


def test_a_parked_connection_is_let_go_when_nothing_will_come() -> None:
    handshake = parked()
    told = shown(handshake.ended(ended("completed", stream=""), waiting=False))
    assert told[-1] == ("stream_resume_none", {})
    assert handshake.state is State.UNOFFERED


def test_a_parked_connection_goes_on_waiting_while_another_turn_is_queued() -> None:
    handshake = parked()
    told = shown(handshake.ended(ended("completed", stream=""), waiting=True))
    assert told[-1][0] == "use_chat_response"
    assert handshake.state is State.PARKED


def test_a_parked_connection_is_offered_the_error_of_a_reply_that_never_began() -> None:
    handshake = parked()
    body = ended("errored", stream="", error="kaput")
    assert shown(handshake.ended(body, waiting=False))[-1] == (
        "stream_resuming",
        {"id": "q1"},
    )


def test_a_skipped_turn_lets_no_parked_connection_go() -> None:
    handshake = parked()
    assert handshake.ended(ended("skipped", stream=""), waiting=False) == []
    assert handshake.state is State.PARKED


def test_a_connection_that_waits_is_not_offered_its_own_reply() -> None:
    # The client would ignore the offer, for it has asked, and get no chunk.
    handshake = parked()
    handshake.submitted("q1")
    assert handshake.started(REPLY) == [Follow(REPLY, replay=False)]


def test_others_hear_of_a_clear_and_who_cleared_does_not() -> None:
    idle = Handshake()
    assert shown(idle.cleared(mine=False)) == [("chat_clear", {})]
    assert idle.cleared(mine=True) == []


@pytest.mark.parametrize("make", [live, offered])
@pytest.mark.parametrize("mine", [True, False])
def test_a_cleared_reply_is_shown_no_more_and_its_end_brings_the_transcript(
    make: Callable[[], Handshake], mine: bool
) -> None:
    handshake = make()
    handshake.submitted("q1")
    leave = ["Unfollow"] if handshake.state is State.FOLLOWING else []
    told: list[Any] = [] if mine else [("chat_clear", {})]
    assert shown(handshake.cleared(mine=mine)) == leave + told
    assert shown(handshake.ended(ended("aborted"), waiting=False)) == [
        "SendTranscript",
        (
            "use_chat_response",
            {"id": "q1", "body": "", "done": True, "outcome": "aborted"},
        ),
    ]


def test_a_clear_lets_parked_connections_go() -> None:
    handshake = parked()
    assert shown(handshake.cleared(mine=True)) == [("stream_resume_none", {})]


def test_a_request_that_was_answered_before_is_told_its_end_again() -> None:
    assert shown(Handshake().asked_again(DONE)) == [
        "SendTranscript",
        ("use_chat_response", {"id": "q1", "body": "", "done": True}),
    ]
    assert shown(Handshake().asked_again(FAILED))[-1][1]["body"] == "kaput"


def test_a_request_that_comes_again_before_its_end_was_told_is_told_it_once() -> None:
    handshake = Handshake()
    handshake.submitted("q1")
    # It is over in the database, and its events are on their way to here.
    assert handshake.asked_again(DONE) == []
    assert handshake.started(REPLY) == [Follow(REPLY, replay=False)]
    told = shown(handshake.ended(ended("completed"), waiting=False))
    assert told[-1] == ("use_chat_response", {"id": "q1", "body": "", "done": True})
    assert shown(handshake.asked_again(DONE))[-1] == told[-1]


def test_a_request_whose_end_was_among_missed_events_is_told_it_when_it_asks() -> None:
    handshake = Handshake()
    handshake.submitted("q1")
    assert handshake.connected(IDLE) == []
    assert shown(handshake.asked_again(DONE))[-1] == (
        "use_chat_response",
        {"id": "q1", "body": "", "done": True},
    )


def test_without_resume_nothing_is_offered_and_chunks_are_withheld() -> None:
    handshake = Handshake(resume=False)
    assert handshake.connected(ACTIVE) == []
    assert shown(handshake.probed("p", ACTIVE))[0][0] == "stream_resume_none"
    assert handshake.started(REPLY) == []
    told = shown(handshake.ended(ended("completed"), waiting=False))
    assert told[0] == "SendTranscript"
    handshake = Handshake(resume=False)
    assert handshake.connected(PENDING) == []
    assert handshake.started(REPLY) == [Follow(REPLY, replay=False)]
