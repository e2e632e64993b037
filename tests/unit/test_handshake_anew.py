"""What the resume handshake makes of a reply that begins anew after a death."""

from __future__ import annotations

from dataclasses import replace

from django_streams.chat.handshake import Follow, Handshake, Replay, State
from django_streams.turns.records import Snapshot

from .test_handshake import (
    ACTIVE,
    DONE,
    IDLE,
    REPLY,
    RUNNING,
    ended,
    following,
    live,
    shown,
)


def test_a_reply_that_begins_anew_is_offered_again_to_who_follows_it() -> None:
    anew = replace(REPLY, stream="s2")
    for handshake in (live(), following()):
        over = {"id": "q1", "body": "", "done": True, "outcome": "recovering"}
        assert shown(handshake.started(anew)) == [
            "Unfollow",
            ("use_chat_response", over),
            ("stream_resuming", {"id": "q1"}),
        ]
        assert handshake.state is State.OFFERED
        assert handshake.started(anew) == []
        seen = Snapshot(events=9, running=replace(RUNNING, stream="s2"))
        assert handshake.acked("q1", seen, None) == [Follow(anew, replay=True)]


def test_a_reply_that_begins_anew_is_no_news_to_who_has_not_accepted_it() -> None:
    handshake = Handshake()
    handshake.connected(ACTIVE)
    assert handshake.started(replace(REPLY, stream="s2")) == []
    assert handshake.state is State.OFFERED


def test_the_end_of_what_begins_anew_may_come_before_it_is_accepted() -> None:
    handshake = live()
    handshake.started(replace(REPLY, stream="s2"))
    over = ended("completed") | {"stream": "s2"}
    before, (kind, _), after = shown(handshake.ended(over, waiting=False))
    assert (before, kind, after) == (
        "SendTranscript",
        "use_chat_response",
        "SendTranscript",
    )
    done = replace(DONE, stream="s2")
    (replay,) = handshake.acked("q1", IDLE, done)
    assert isinstance(replay, Replay) and replay.reply.stream == "s2"


def test_without_resume_who_follows_gets_the_end_of_what_begins_anew() -> None:
    handshake = Handshake(resume=False)
    handshake.started(REPLY)
    leave, (kind, over) = shown(handshake.started(replace(REPLY, stream="s2")))
    assert (leave, kind, over["done"]) == ("Unfollow", "use_chat_response", True)
    over = ended("completed") | {"stream": "s2"}
    assert shown(handshake.ended(over, waiting=False))[0] == "SendTranscript"
