"""What a client may send without losing its socket."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.turns import queue

from .chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    Script,
    Tab,
    stored,
    text_of,
    user_message,
)

pytestmark = pytest.mark.usefixtures("chat")

JUNK: list[Any] = [
    "",
    "hello",
    "null",
    "[]",
    "7",
    "{}",
    "[" * 100_000,
    '{"type":"' + "x" * 1_000_000 + '"}',
    {"type": "cf_agent_unknown"},
    {"type": "cf_agent_use_chat_request"},
    {"type": "cf_agent_use_chat_request", "id": {"a": 1}},
    {"type": "cf_agent_stream_resume_ack", "id": None},
    {"type": "cf_agent_chat_request_cancel", "id": "never"},
    {"type": "cf_agent_chat_messages", "messages": [None, 7, {}]},
    {"type": "cf_agent_tool_result", "toolCallId": "c"},
]


async def test_what_is_no_frame_leaves_the_socket_as_it_was(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ready()
        for junk in JUNK:
            await tab.send(junk)
        await tab.send_bytes(b"\xff\x00")
        assert await tab.silent()
        assert (await tab.probe())["type"] == NONE
        script.say("fine")
        script.end()
        await tab.ask("x")
        assert text_of(await tab.done()) == "fine"
    assert not [r for r in caplog.records if r.levelname in ("ERROR", "WARNING")]


@pytest.mark.parametrize(
    "init",
    [
        None,
        {},
        {"method": "GET", "body": "{}"},
        {"method": "POST"},
        {"method": "POST", "body": "{"},
        {"method": "POST", "body": "[" * 100_000},
        {"method": "POST", "body": "[]"},
        {"method": "POST", "body": '{"messages": 7}'},
    ],
)
async def test_a_request_that_cannot_run_gets_a_terminal_error(init: Any) -> None:
    agent = Script().agent()
    async with Tab(agent) as tab:
        await tab.ready()
        await tab.send({"type": "cf_agent_use_chat_request", "id": "q1", "init": init})
        (frame,) = await tab.done()
    assert frame["error"] is True and frame["body"]


async def test_deep_and_odd_messages_are_refused_or_kept_exactly() -> None:
    script = Script()
    agent = script.agent()
    deep: Any = "x"
    for _ in range(600):
        deep = [deep]
    async with Tab(agent) as tab:
        bad = user_message("x", "u0") | {"parts": [{"type": "data-x", "data": deep}]}
        await tab.submit([bad], "q0")
        assert (await tab.done("q0"))[-1]["error"] is True
        odd = "\x00 \\u0000 \u2028 é 😀 " + "\ud800"
        script.end()
        await tab.submit([user_message(odd, "u1")], "q1")
        await tab.done()
    assert (await stored(agent))[0]["parts"][0]["text"] == odd


async def test_an_empty_list_of_messages_runs_on_what_is_stored() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.end()
        await tab.ask("x")
        await tab.done()
        script.end()
        await tab.submit([], "q2")
        await tab.done("q2")
    assert [m["id"] for m in script.turns[1].messages] == ["u-q1"]


async def test_a_synced_transcript_is_stored_and_shown_to_the_others() -> None:
    agent = Script().agent()
    messages = [user_message("a", "u1"), user_message("b", "u2")]
    async with Tab(agent) as tab, Tab(agent) as other:
        await other.ready()
        await tab.send({"type": "cf_agent_chat_messages", "messages": messages})
        assert (await other.until(MESSAGES))["messages"] == messages
        # Nothing is deleted by a shorter list, nor by an empty one.
        await tab.send({"type": "cf_agent_chat_messages", "messages": messages[:1]})
        await tab.send({"type": "cf_agent_chat_messages", "messages": []})
        await other.until(MESSAGES)
    assert await stored(agent) == messages


async def test_an_unknown_method_is_answered() -> None:
    async with Tab(Script().agent()) as tab:
        await tab.send({"type": "rpc", "id": "r1", "method": "m", "args": []})
        assert await tab.until("rpc") == {
            "type": "rpc",
            "id": "r1",
            "success": False,
            "error": "Method m does not exist",
        }


async def test_a_failure_while_handling_a_frame_is_an_error_frame(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script()
    agent = script.agent()
    submit = queue.submit

    def broken(*args: Any) -> Any:
        monkeypatch.setattr(queue, "submit", submit)
        raise RuntimeError("disk full")

    async with Tab(agent) as tab:
        await tab.ready()
        monkeypatch.setattr(queue, "submit", broken)
        await tab.ask("x")
        (frame,) = await tab.done()
        assert frame["body"].startswith("Internal error (reference ")
        assert "disk full" in caplog.text
        script.say("fine")
        script.end()
        await tab.ask("x", "q2")
        assert text_of(await tab.done("q2"), "q2") == "fine"


async def test_many_frames_at_once_are_all_answered() -> None:
    async with Tab(Script().agent()) as tab:
        for at in range(300):
            await tab.send(
                {"type": "cf_agent_stream_resume_request", "probeId": f"p{at}"}
            )
        answers = [await tab.until(NONE) for _ in range(300)]
    assert [a["probeId"] for a in answers] == [f"p{at}" for at in range(300)]


async def test_frames_are_handled_while_a_reply_streams() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        await tab.ask("x")
        script.say("a")
        await tab.until(RESPONSE, seq=3)
        assert (await tab.probe())["type"] == "cf_agent_stream_resuming"
        await tab.ask("y", "q2")
        await tab.cancel("q2")
        assert (await tab.done("q2"))[-1]["outcome"] == "aborted"
        script.end()


async def test_a_large_message_and_a_large_reply_come_through() -> None:
    big = "é" * 1_000_000
    script = Script()
    agent = script.agent()
    script.say(big, {"type": "file", "mediaType": "x/y", "url": "data:," + big})
    script.end()
    async with Tab(agent) as tab:
        await tab.submit([user_message(big, "u1")], "q1")
        frames = await tab.done()
    assert text_of(frames) == big
    asked, answer = await stored(agent)
    assert asked["parts"][0]["text"] == big
    assert answer["parts"][-1]["url"].endswith(big)


async def test_a_chunk_beyond_the_limit_fails_the_turn_alone() -> None:
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        script.say("a", {"type": "data-x", "data": "x" * (17 * 1024 * 1024)})
        await tab.ask("x")
        assert (await tab.done())[-1]["error"] is True
        script.say("fine")
        script.end()
        await tab.ask("y", "q2")
        assert text_of(await tab.done("q2"), "q2") == "fine"


async def test_a_request_that_is_too_large_or_too_deep_is_told_so(
    settings: Any,
) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {"CHAT_FRAME_CHARS": 5000}
    agent = Script().agent()
    async with Tab(agent) as tab:
        await tab.ready()
        await tab.ask("x" * 10_000, "large")
        (frame,) = await tab.done("large")
        assert frame["body"] == "A frame may have 5,000 characters."
        await tab.ask("x", "deep", custom=nested(600))
        (frame,) = await tab.done("deep")
        assert frame["body"] == "A frame may nest 512 levels deep."
        assert (await tab.probe())["type"] == NONE


async def test_a_request_or_call_that_cannot_be_named_or_made_is_told_so() -> None:
    agent = Script().agent()
    async with Tab(agent) as tab:
        await tab.ready()
        for request_id in ("", "a\x00b", "\ud800", "x" * 5000):
            await tab.ask("x", request_id)
            (frame,) = await tab.done(request_id)
            assert frame["error"] is True
            assert frame["body"] == "The id of the request cannot be used."
        await tab.send({"type": "rpc", "id": "r1", "method": 7})
        assert await tab.next() == {
            "type": "rpc",
            "id": "r1",
            "success": False,
            "error": "The call names no method.",
        }
        assert (await tab.probe())["type"] == NONE
    assert await stored(agent) == []


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_a_client_that_floods_loses_its_socket_for_good(settings: Any) -> None:
    settings.DJANGO_STREAMS = settings.DJANGO_STREAMS | {"CHAT_FRAME_RATE": 2.0}
    agent = Script().agent()
    async with Tab(agent) as tab, Tab(agent) as other:
        await tab.ready()
        for _ in range(21):
            await tab.send({"type": "x"})
        assert await tab.next() == {"type": "close", "code": 4429}
        await other.ready()
        assert (await other.probe())["type"] == NONE
