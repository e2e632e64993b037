"""Coming back in the middle of a reply, and watching one from elsewhere."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from django_streams import PublicError
from django_streams.models import ConversationEvent
from django_streams.turns import door, status, watch
from django_streams.turns.replay import turn_streams

from .chatting import (
    MESSAGES,
    NONE,
    PENDING,
    RESPONSE,
    RESUMING,
    Frame,
    Script,
    Tab,
    chunks,
    make_agent,
    message_text,
    ref_of,
    responses,
    text_of,
    user_message,
)

pytestmark = pytest.mark.usefixtures("chat")


async def begin(tab: Tab, script: Script, *words: str) -> None:
    """Ask, and have *words* said and shown."""
    await tab.ask("x")
    script.say(*words)
    await tab.until(RESPONSE, seq=2 + len(words))


async def replayed(tab: Tab) -> list[Frame]:
    """The frames up to the end of a replay."""
    start = len(tab.kept)
    await tab.until(RESPONSE, replayComplete=True)
    return tab.kept[start:]


async def test_nothing_to_resume_is_said_at_once() -> None:
    agent = Script().agent()
    async with Tab(agent) as tab:
        await tab.ready()
        async with asyncio.timeout(1):
            assert await tab.probe("p7") == {
                "type": NONE,
                "reason": "idle",
                "probeId": "p7",
            }


async def test_a_connection_in_the_middle_of_a_reply_is_offered_it() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.ready()
            assert await second.next() == {"type": RESUMING, "id": "q1"}
            # Asking for it brings a second offer, however often it asks.
            assert await second.probe("p1") == {
                "type": RESUMING,
                "id": "q1",
                "probeId": "p1",
            }
            script.end()


async def test_no_chunk_comes_before_the_offer_is_accepted() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.until(RESUMING)
            script.say("b")
            await first.until(RESPONSE, seq=4)
            assert await second.silent()
            await second.ack()
            replay = await replayed(second)
            assert text_of(replay) == "ab"
            script.say("c")
            script.end()
            live = await second.done()
    assert all(f["replay"] is True for f in responses(replay))
    assert [f["seq"] for f in responses(replay)[:-1]] == list(range(5))
    assert replay[-1] == {
        "type": RESPONSE,
        "id": "q1",
        "body": "",
        "done": False,
        "replay": True,
        "replayComplete": True,
    }
    assert not any("replay" in f for f in live)
    assert text_of(live) == "c"
    assert [f["seq"] for f in responses(live) if not f["done"]] == [5, 6, 7, 8]


async def test_the_replay_ends_while_the_model_is_silent() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, *("w" * 30))
    async with Tab(agent) as second:
        await second.until(RESUMING)
        await second.ack()
        async with asyncio.timeout(1):
            assert text_of(await replayed(second)) == "w" * 30
        script.end()
        await second.done()


async def test_a_reply_that_has_begun_without_a_word_can_be_resumed() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await first.ask("x")
        await script.begun.wait()
        # The stream exists once a second connection is offered it.
        async with Tab(agent) as second:
            assert (await second.until(RESUMING))["id"] == "q1"
            await second.ack()
            assert len(await replayed(second)) == 1
            script.say("a")
            script.end()
            assert text_of(await second.done()) == "a"


async def test_each_acceptance_before_the_first_word_is_answered() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await first.ask("x")
        await script.begun.wait()
        async with Tab(agent) as second:
            await second.until(RESUMING)
            for _ in range(3):
                await second.ack()
            for _ in range(3):
                assert text_of(await replayed(second)) == ""
            script.say("a")
            script.end()
            assert text_of(await second.done()) == "a"


async def test_every_acceptance_gets_a_full_replay_and_live_chunks_come_once() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, *("w" * 40))
        async with Tab(agent) as second:
            await second.until(RESUMING)
            await second.probe()
            await second.ack()
            await second.ack()
            one, two = await replayed(second), await replayed(second)
            assert text_of(one) == text_of(two) == "w" * 40
            script.say("end")
            script.end()
            assert text_of(await second.done()) == "end"


async def test_an_acceptance_while_live_replays_again() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.until(RESUMING)
            await second.ack()
            await replayed(second)
            script.say("b")
            await second.until(RESPONSE, seq=4)
            await second.ack()
            assert text_of(await replayed(second)) == "ab"
            script.end()
            assert text_of(await second.done()) == ""


async def test_accepting_a_foreign_id_brings_nothing() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.until(RESUMING)
            await second.ack("other")
            script.say("b")
            await first.until(RESPONSE, seq=4)
            assert await second.silent()
            script.end()
            await second.done()


async def test_an_unknown_id_is_answered_by_an_end() -> None:
    async with Tab(Script().agent()) as tab:
        await tab.ready()
        await tab.ack("nope")
        assert await tab.next() == {
            "type": RESPONSE,
            "id": "nope",
            "body": "",
            "done": True,
            "replay": True,
        }


async def test_a_reply_that_ends_between_offer_and_acceptance_is_complete() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a", "b")
        async with Tab(agent) as second:
            await second.until(RESUMING)
            script.end()
            await first.done()
            end = await second.done()
            assert [f["type"] for f in end] == [MESSAGES, RESPONSE]
            assert message_text(end[0]["messages"][1]) == "ab"
            await second.ack()
            late = await second.done()
    assert text_of(late) == "ab"
    assert all(f["replay"] is True for f in late)
    assert late[-1]["done"] is True


async def test_leaving_between_offer_and_acceptance_leaves_no_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.until(RESUMING)
            await second.ack()
            await second.leave()
            script.end()
            await first.done()
    assert not [r for r in caplog.records if r.levelname in ("ERROR", "WARNING")]


async def test_after_the_end_nothing_is_offered_and_the_transcript_is_there() -> None:
    script = Script()
    agent = script.agent()
    script.say("all")
    script.end()
    async with Tab(agent) as first:
        await first.ask("x")
        await first.done()
    async with Tab(agent) as second:
        _, transcript = await second.ready()
        assert message_text(transcript["messages"][1]) == "all"
        assert (await second.probe())["type"] == NONE
        assert RESUMING not in [f["type"] for f in second.kept]


async def test_the_error_of_the_last_reply_is_shown_to_who_comes_later() -> None:
    script = Script()
    agent = script.agent()
    script.say("par", "tial", PublicError("kaput"))
    async with Tab(agent) as first:
        await first.ask("x")
        await first.done()
    for _ in range(2):
        async with Tab(agent) as later:
            assert (await later.probe())["type"] == RESUMING
            await later.ack()
            frames = responses(await later.done())
            assert text_of(frames) == "partial"
            assert all(f["replay"] for f in frames[:-1])
            assert frames[-1]["body"] == "kaput"
            assert frames[-1]["error"] is True and "replay" not in frames[-1]
    async with Tab(agent) as tab:
        script.say("fine")
        script.end()
        await tab.ask("y", "q2")
        await tab.done("q2")
        assert (await tab.probe())["type"] == NONE


async def test_a_connection_before_the_first_word_waits_for_it() -> None:
    release, speak = asyncio.Event(), asyncio.Event()

    async def late() -> AsyncIterator[str]:
        await speak.wait()
        yield "late"

    async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[str]:
        await release.wait()
        return late()

    agent = make_agent(on_chat_message)
    async with Tab(agent) as first:
        await first.ask("x")
        async with Tab(agent) as second:
            while (await second.probe())["type"] == NONE:
                pass
            kinds = {f["type"] for f in second.kept[2:]}
            assert kinds <= {NONE, MESSAGES, PENDING}
            assert second.kept[-1] == {"type": PENDING, "id": "q1", "probeId": "p1"}
            release.set()
            assert (await second.until(RESUMING))["id"] == "q1"
            await second.ack()
            await replayed(second)
            speak.set()
            assert text_of(await second.done()) == "late"


async def test_who_waits_for_a_reply_that_says_nothing_is_let_go() -> None:
    release = asyncio.Event()

    async def on_chat_message(self: Any, turn: Any) -> None:
        await release.wait()

    agent = make_agent(on_chat_message)
    async with Tab(agent) as first:
        await first.ask("x")
        async with Tab(agent) as second:
            while (await second.probe())["type"] == NONE:
                pass
            release.set()
            assert await second.until(NONE) == {"type": NONE}


async def test_a_second_tab_sees_a_reply_live_and_then_the_transcript() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first, Tab(agent) as second:
        await first.ready()
        await second.ready()
        await first.ask("hello")
        sent = await second.until(MESSAGES)
        assert [m["id"] for m in sent["messages"]] == ["u-q1"]
        script.say("a", "b")
        script.end()
        mine, theirs = await first.done(), await second.done()
    assert chunks(theirs) == chunks(mine)
    assert [f["type"] for f in theirs[-2:]] == [MESSAGES, RESPONSE]
    assert message_text(theirs[-2]["messages"][1]) == "ab"
    # Who asked has every chunk: a transcript would only race with what follows.
    assert mine[0]["connect"] is True
    assert {f["type"] for f in mine[1:]} == {RESPONSE}


async def test_what_is_sent_on_arrival_is_in_the_transcript_that_follows() -> None:
    script = Script()
    agent = script.agent()
    script.say("a")
    script.end()
    async with Tab(agent) as tab:
        # Before it has seen the first transcript, which lacks the question.
        await tab.ask("hello")
        frames = await tab.done()
        told = [f["messages"] for f in frames if f["type"] == MESSAGES]
        assert [[m["id"] for m in messages] for messages in told] == [[], ["u-q1"]]
        await tab.send({"type": "cf_agent_chat_clear"})
        assert (await tab.until(MESSAGES))["messages"] == []
        # That one brings nothing back.
        await tab.send({"type": "cf_agent_chat_clear"})
        assert await tab.silent()


async def test_frames_of_one_connection_are_handled_in_order() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ready()
        # As a client does that was offline: a probe, then what was typed.
        await tab.send({"type": "cf_agent_stream_resume_request", "probeId": "p"})
        await tab.ask("x")
        script.say("a")
        script.end()
        frames = await tab.done()
    assert frames[0] == {"type": NONE, "reason": "idle", "probeId": "p"}
    assert text_of(frames) == "a"


async def test_without_resume_a_late_connection_gets_only_the_end() -> None:
    script = Script()
    agent = script.agent(resume=False)
    async with Tab(agent) as first:
        await begin(first, script, "a")
        async with Tab(agent) as second:
            await second.ready()
            assert (await second.probe())["type"] == NONE
            script.say("b")
            script.end()
            frames = await second.done()
    assert [f["type"] for f in frames] == [MESSAGES, RESPONSE]


async def test_a_client_that_does_not_read_is_not_read_for() -> None:
    script = Script()
    agent = script.agent()
    word = "x" * 1000
    async with Tab(agent) as first:
        await first.ready()
        async with Tab(agent) as second:
            await second.ready()
            second.reading.clear()
            await first.ask("x")
            script.say(*[word] * 500)
            script.end()
            await first.done()
            # Everything is stored; the second connection holds one send.
            assert second.sent <= 4
            second.reading.set()
            assert text_of(await second.done()) == word * 500


async def test_the_follower_holds_one_batch_of_a_long_reply() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as first:
        await begin(first, script, *("w" * 1250))
        async with Tab(agent) as second:
            await second.until(RESUMING)
            await second.ack()
            assert text_of(await replayed(second)) == "w" * 1250
        script.end()
        await first.done()


async def test_a_deleted_log_ends_the_chunks_and_not_the_connection() -> None:
    script = Script()
    agent = script.agent()
    script.say("a")
    script.end()
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.done()
        turn = await door.run(status.find_turn, ref_of(agent, "room"), "q1")
        assert turn is not None
        await turn_streams(door.alias()).adelete(turn.stream)
        await tab.ack()
        (end,) = await tab.done()
    assert json.loads(json.dumps(end))["replay"] is True


async def test_a_connection_that_missed_trimmed_events_gets_the_transcript(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So few events are remembered that the slow one must ask the database.
    monkeypatch.setattr(watch, "_PAGE", 2)
    agent = Script().agent()
    async with Tab(agent) as slow, Tab(agent) as other:
        await slow.ready()
        await other.ready()
        slow.reading.clear()
        for at in range(8):
            messages = [user_message(str(at), f"u{at}")]
            await other.send({"type": MESSAGES, "messages": messages})
        await other.probe()
        await door.run(trim, 7)
        slow.reading.set()
        healed = await slow.until(MESSAGES, connect=True)
        assert len(healed["messages"]) == 8
        await other.send({"type": MESSAGES, "messages": [user_message("x", "u9")]})
        while len((await slow.until(MESSAGES))["messages"]) < 9:
            pass


def trim(first: int) -> None:
    ConversationEvent.objects.using(door.alias()).filter(seq__lt=first).delete()
