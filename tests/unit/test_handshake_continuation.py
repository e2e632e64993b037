"""The part that continuations after tool calls have in the resume handshake."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from django_streams.chat.handshake import Follow, Handshake, Replay, Reply, State
from django_streams.turns.records import Snapshot, TurnStatus

from .test_handshake import BROKEN, IDLE, RUNNING, ended, shown

CONTINUATION = replace(RUNNING, request_id="c1", continuation=True, stream="s2")
CONTINUED = Reply.of(CONTINUATION)
CONTINUING = Snapshot(events=9, running=CONTINUATION)


def enrolled() -> Handshake:
    handshake = Handshake()
    handshake.connected(IDLE)
    handshake.enrolled("c1")
    return handshake


def test_who_answered_a_call_is_offered_the_continuation_and_others_see_it_live() -> (
    None
):
    offer = [("stream_resuming", {"id": "c1"})]
    assert shown(enrolled().started(CONTINUED)) == offer
    assert Handshake().started(CONTINUED) == [Follow(CONTINUED, replay=False)]


def test_a_probe_for_a_continuation_that_has_not_begun_is_told_to_wait() -> None:
    told = ("stream_pending", {"id": "c1", "probeId": "p"})
    assert shown(enrolled().probed("p", IDLE)) == [told]
    assert shown(enrolled().probed("p", BROKEN)) == [told]


def test_a_probe_for_a_running_continuation_resumes_it_for_its_owner_alone() -> None:
    owner, other, late = enrolled(), Handshake(), Handshake()
    owner.started(CONTINUED)
    other.started(CONTINUED)
    late.connected(CONTINUING)
    offer = [("stream_resuming", {"id": "c1", "probeId": "p"})]
    assert shown(owner.probed("p", CONTINUING)) == offer
    # It came in the middle, so it has not seen the beginning.
    assert shown(late.probed("p", CONTINUING)) == offer
    assert shown(other.probed("p", CONTINUING)) == [
        ("stream_resume_none", {"reason": "continuation-owned", "probeId": "p"})
    ]
    assert other.state is State.FOLLOWING


def test_everybody_gets_the_transcript_at_the_end_of_a_continuation() -> None:
    handshake = enrolled()
    handshake.started(CONTINUED)
    handshake.acked("c1", CONTINUING, None)
    end = ended("completed") | {"turn": "c1", "stream": "s2", "continuation": True}
    assert shown(handshake.ended(end, waiting=False)) == [
        "Drain",
        "SendTranscript",
        (
            "use_chat_response",
            {"id": "c1", "body": "", "done": True, "continuation": True},
        ),
    ]


@pytest.mark.parametrize(
    ("status", "seen", "last"),
    [
        (TurnStatus.COMPLETED, IDLE, {"replay": True}),
        (TurnStatus.ABORTED, IDLE, {"replay": True, "outcome": "aborted"}),
        (TurnStatus.ERRORED, BROKEN, {"error": True}),
    ],
)
def test_a_continuation_accepted_after_its_end_takes_its_place_before_it_is_over(
    status: TurnStatus, seen: Snapshot, last: dict[str, Any]
) -> None:
    over = replace(CONTINUATION, status=status)
    failed = over if seen is BROKEN else None
    (replay,) = enrolled().acked("c1", replace(seen, failed=failed), over)
    assert isinstance(replay, Replay) and replay.reply == CONTINUED
    transcript, (kind, end) = shown(list(replay.then))
    assert (transcript, kind) == ("SendTranscript", "use_chat_response")
    assert end == end | last | {"id": "c1", "done": True, "continuation": True}


def test_who_waits_for_a_continuation_that_says_nothing_is_let_go() -> None:
    none: Any = ("stream_resume_none", {})
    end = ended("completed", stream="", spoke=False)
    end |= {"turn": "c1", "continuation": True}
    assert shown(enrolled().ended(end, waiting=False))[-1] == none
    assert shown(enrolled().cleared(mine=True)) == [none]


WAITING = Snapshot(events=9, wanted="c1", owner="k1")


def test_a_continuation_that_waits_for_answers_is_its_owner_s_or_anybody_s() -> None:
    told = ("stream_pending", {"id": "c1", "probeId": "p"})
    idle = ("stream_resume_none", {"reason": "idle", "probeId": "p"})
    for connection, owner, answer in [
        ("k1", "k1", told),
        ("k2", "k1", idle),
        ("k2", "", told),
    ]:
        handshake = Handshake(connection=connection)
        seen = replace(WAITING, owner=owner)
        assert shown(handshake.probed("p", seen)) == [answer]
        # Who was told to wait is offered it, everybody else sees it live.
        offered = [("stream_resuming", {"id": "c1"})]
        started = handshake.started(CONTINUED)
        if answer == told:
            assert shown(started) == offered
        else:
            assert started == [Follow(CONTINUED, replay=False)]


def test_who_waits_for_a_continuation_that_is_dropped_is_let_go() -> None:
    none: Any = ("stream_resume_none", {})
    end = ended("skipped", stream="") | {"turn": "c1", "continuation": True}
    assert shown(enrolled().ended(end, waiting=False)) == [none]
    assert shown(Handshake().ended(end, waiting=False)) == []
    aborted: Any = (
        "use_chat_response",
        {
            "id": "c1",
            "body": "",
            "done": True,
            "continuation": True,
            "outcome": "aborted",
        },
    )
    end |= {"status": "aborted"}
    told = shown(enrolled().ended(end, waiting=False))
    assert told == ["SendTranscript", none, aborted]


def test_who_waits_for_a_continuation_that_fails_is_offered_its_error() -> None:
    end = ended("errored", stream="", error="no") | {"turn": "c1", "continuation": True}
    told = shown(enrolled().ended(end, waiting=False))
    assert told[-1] == ("stream_resuming", {"id": "c1"})
    assert told[-2][1]["error"] is True


def test_who_missed_the_end_of_what_it_waited_for_is_let_go() -> None:
    none: Any = ("stream_resume_none", {})
    handshake = enrolled()
    assert shown(handshake.connected(WAITING)) == []
    assert shown(handshake.connected(IDLE)) == [none]
    assert shown(handshake.connected(IDLE)) == []


ANEW = replace(CONTINUATION, stream="s3", seq_base=4)
BEGUN_ANEW = Snapshot(events=9, running=ANEW)


def test_a_continuation_that_is_begun_anew_takes_its_words_back_first() -> None:
    over: Any = (
        "use_chat_response",
        {
            "id": "c1",
            "body": "",
            "done": True,
            "continuation": True,
            "outcome": "recovering",
        },
    )
    offer = ("stream_resuming", {"id": "c1"})
    probed = ("stream_resuming", {"id": "c1", "probeId": "p"})
    looking = Handshake()
    looking.started(CONTINUED)
    anew = [over, "SendTranscript", offer]
    assert shown(looking.started(Reply.of(ANEW))) == ["Unfollow", *anew]
    # Offered and not accepted, and told of it by the event or before it.
    for news in ("event", "probe", "acceptance"):
        back = Handshake()
        back.connected(CONTINUING)
        if news == "event":
            assert shown(back.started(Reply.of(ANEW))) == anew
        elif news == "probe":
            assert shown(back.probed("p", BEGUN_ANEW)) == [*anew, probed]
        else:
            assert shown(back.acked("c1", BEGUN_ANEW, None)) == anew
        accepted = back.acked("c1", BEGUN_ANEW, None)
        assert accepted == [Follow(Reply.of(ANEW), replay=True)]
        assert back.started(Reply.of(ANEW)) == []


def test_who_comes_after_that_is_told_before_the_transcript() -> None:
    assert Handshake().overtaken(CONTINUING) == []
    assert Handshake().overtaken(IDLE) == []
    (over,) = shown(Handshake().overtaken(BEGUN_ANEW))
    assert over[1]["outcome"] == "recovering"
