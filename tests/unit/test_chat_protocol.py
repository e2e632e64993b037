"""The frames of the chat wire: parsing is total, writing is exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.chat import protocol
from django_streams.chat.naming import kebab
from django_streams.chat.protocol import (
    Cancel,
    ChatRequest,
    Clear,
    Ignored,
    Malformed,
    MalformedCall,
    Response,
    ResumeAck,
    ResumeRequest,
    Rpc,
    SetState,
    SyncMessages,
    ToolApproval,
    ToolResult,
    origin_ids,
    parse,
)
from django_streams.messages.valid import is_message

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}


def chat_request(body: object, **members: Any) -> str:
    init = {"method": "POST", "body": json.dumps(body)}
    frame = {"type": "cf_agent_use_chat_request", "id": "q1", "init": init}
    return json.dumps(frame | members)


def test_a_chat_request_is_read_as_the_official_client_sends_it() -> None:
    frame = parse(
        chat_request(
            {
                "messages": [USER],
                "trigger": "regenerate-message",
                "clientTools": [{"name": "t"}],
                "model": "m",
            }
        )
    )
    assert frame == ChatRequest(
        "q1", [USER], "regenerate-message", {"model": "m"}, [{"name": "t"}]
    )


def test_no_custom_keys_and_no_tools_are_absent() -> None:
    frame = parse(chat_request({"messages": [USER], "clientTools": []}))
    assert frame == ChatRequest("q1", [USER], "submit-message", None, None)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (
            {"type": "cf_agent_stream_resume_request", "probeId": "p"},
            ResumeRequest("p"),
        ),
        ({"type": "cf_agent_stream_resume_request"}, ResumeRequest(None)),
        ({"type": "cf_agent_stream_resume_request", "probeId": 7}, ResumeRequest(None)),
        ({"type": "cf_agent_stream_resume_ack", "id": "d1"}, ResumeAck("d1")),
        ({"type": "cf_agent_chat_request_cancel", "id": "q1"}, Cancel("q1")),
        ({"type": "cf_agent_chat_clear"}, Clear()),
        (
            {"type": "cf_agent_chat_messages", "messages": [USER]},
            SyncMessages([USER]),
        ),
        ({"type": "rpc", "id": "r", "method": "m", "args": [1]}, Rpc("r", "m", [1])),
        ({"type": "cf_agent_state", "state": None}, SetState(None)),
        ({"type": "cf_agent_tool_result", "toolCallId": "t"}, ToolResult("t")),
        (
            {
                "type": "cf_agent_tool_result",
                "toolCallId": "t",
                "toolName": "",
                "output": [1],
                "state": "output-error",
                "errorText": "no",
                "autoContinue": True,
                "clientTools": [{"name": "n"}],
            },
            ToolResult("t", [1], True, "no", True, [{"name": "n"}]),
        ),
        (
            {"type": "cf_agent_tool_approval", "toolCallId": "t", "approved": False},
            ToolApproval("t", False),
        ),
    ],
)
def test_each_client_frame_is_recognised(frame: object, expected: object) -> None:
    assert parse(json.dumps(frame)) == expected


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "hello",
        "null",
        "[]",
        "7",
        '"x"',
        "{}",
        '{"type":7}',
        '{"type":"cf_agent_unknown"}',
        '{"type":"cf_agent_use_chat_response","id":"q1"}',
        '{"type":"cf_agent_stream_resume_ack"}',
        '{"type":"cf_agent_stream_resume_ack","id":{}}',
        '{"type":"cf_agent_chat_request_cancel","id":["a"]}',
        '{"type":"cf_agent_chat_messages","messages":7}',
        '{"type":"cf_agent_state"}',
        '{"type":"cf_agent_tool_result","toolCallId":7}',
        '{"type":"cf_agent_tool_approval","toolCallId":"t","approved":"yes"}',
        '{"type":"cf_agent_use_chat_request","id":7}',
        '{"type":"rpc","method":"m"}',
        '{"type":"rpc","id":7,"method":"m"}',
        "[" * 100_000,
        '{"type":"cf_agent_chat_clear","x":NaN}',
        '{"type":"cf_agent_chat_clear","x":1e400}',
    ],
)
def test_what_is_no_frame_is_ignored(text: str | None) -> None:
    assert isinstance(parse(text), Ignored)


@pytest.mark.parametrize(
    "frame",
    [
        chat_request({}, init={"method": "POST"}),
        chat_request({}, init={"method": "POST", "body": ""}),
        chat_request({}, init={"method": "POST", "body": "{"}),
        chat_request({}, init={"method": "POST", "body": "[" * 100_000}),
        chat_request({}, init={"method": "POST", "body": '{"messages":[NaN]}'}),
        chat_request({}, init={"method": "GET", "body": "{}"}),
        chat_request({}, init=None),
        chat_request([]),
        chat_request({"messages": "no"}),
        chat_request({}),
    ],
)
def test_a_chat_request_that_cannot_run_can_be_answered(frame: str) -> None:
    parsed = parse(frame)
    assert isinstance(parsed, Malformed)
    assert parsed.request_id == "q1"


UNUSABLE = ["", "x" * 257, "x" * 100_000, "a\x00b", "\ud800", 'a"\\b\x7f']


@pytest.mark.parametrize("request_id", UNUSABLE)
def test_a_request_whose_id_cannot_be_used_is_answered_under_it(
    request_id: str,
) -> None:
    parsed = parse(chat_request({"messages": [USER]}, id=request_id))
    assert isinstance(parsed, Malformed)
    assert parsed.request_id == request_id
    answer = protocol.Response(parsed.request_id).error(parsed.problem)
    assert json.loads(answer)["id"] == request_id
    answer.encode()


@pytest.mark.parametrize("request_id", ["", "a\x00b", "\ud800", 'a"b', "x" * 500])
def test_a_request_that_is_not_parsed_is_answered_under_any_id(request_id: str) -> None:
    frame = chat_request({"messages": [USER]}, id=request_id)
    parsed = parse(frame, max_chars=50)
    assert parsed == Malformed(request_id, "A frame may have 50 characters.")


@pytest.mark.parametrize("method", [None, 7, ["add"]])
def test_a_call_of_no_method_can_be_answered(method: object) -> None:
    parsed = parse(json.dumps({"type": "rpc", "id": "r", "method": method}))
    assert isinstance(parsed, MalformedCall)
    assert parsed.call_id == "r"


@pytest.mark.parametrize("call_id", UNUSABLE)
def test_a_call_whose_id_cannot_be_used_can_be_answered(call_id: str) -> None:
    parsed = parse(json.dumps({"type": "rpc", "id": call_id, "method": "m"}))
    assert isinstance(parsed, MalformedCall)
    assert parsed.call_id == call_id


@pytest.mark.parametrize(
    "message",
    [
        None,
        7,
        {},
        USER | {"id": ""},
        USER | {"id": 7},
        USER | {"role": "robot"},
        USER | {"parts": None},
        USER | {"parts": ["text"]},
        {"id": "u2", "role": "user"},
    ],
)
def test_messages_that_cannot_be_kept_are_left_out(message: object) -> None:
    frame = parse(chat_request({"messages": [message, USER]}))
    assert isinstance(frame, ChatRequest)
    assert frame.messages == [USER]


def test_a_message_may_have_no_parts() -> None:
    assert is_message(USER | {"parts": []})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner)
    ),
    max_leaves=8,
)
member_names = st.sampled_from(
    ["type", "id", "init", "messages", "probeId", "method", "args", "trigger", "body"]
)
types = st.sampled_from(
    [
        "cf_agent_use_chat_request",
        "cf_agent_stream_resume_request",
        "cf_agent_stream_resume_ack",
        "cf_agent_chat_request_cancel",
        "cf_agent_chat_messages",
        "rpc",
    ]
)


@given(st.dictionaries(member_names, json_values), types)
def test_parsing_never_raises(members: dict[str, Any], kind: str) -> None:
    parse(json.dumps(members | {"type": kind}))


@given(json_values)
def test_parsing_any_body_never_raises(body: object) -> None:
    parse(chat_request(body))


@given(st.text())
def test_parsing_any_text_never_raises(text: str) -> None:
    parse(text)


def test_origin_ids_are_those_of_the_user_messages_at_the_end() -> None:
    answer = {"id": "a1", "role": "assistant", "parts": []}
    second = USER | {"id": "u2"}
    third = USER | {"id": "u3"}
    assert origin_ids([USER, answer, second, third]) == ["u2", "u3"]
    assert origin_ids([USER, answer]) == []
    assert origin_ids([]) == []


def told(text: str) -> Any:
    return json.loads(text)


RESPONSE = "cf_agent_use_chat_response"


def test_response_frames_are_those_of_the_protocol() -> None:
    response = Response("q1", message_ids=["u1"])
    body = '{"type":"text-delta","id":"t","delta":"hé \\u2028 \\"x\\""}'
    assert told(response.chunk(3, body)) == {
        "type": RESPONSE,
        "id": "q1",
        "body": body,
        "done": False,
        "seq": 3,
    }
    assert told(response.chunk(0, body, replay=True)) == {
        "type": RESPONSE,
        "id": "q1",
        "body": body,
        "done": False,
        "replay": True,
        "seq": 0,
    }
    assert told(response.replay_complete()) == {
        "type": RESPONSE,
        "id": "q1",
        "body": "",
        "done": False,
        "replay": True,
        "replayComplete": True,
    }
    assert told(response.done()) == {
        "type": RESPONSE,
        "id": "q1",
        "body": "",
        "done": True,
        "messageIds": ["u1"],
    }
    assert told(response.done(outcome="aborted", replay=True)) == {
        "type": RESPONSE,
        "id": "q1",
        "body": "",
        "done": True,
        "replay": True,
        "outcome": "aborted",
        "messageIds": ["u1"],
    }
    assert told(response.error("kaput")) == {
        "type": RESPONSE,
        "id": "q1",
        "body": "kaput",
        "done": True,
        "error": True,
        "messageIds": ["u1"],
    }


def test_every_frame_of_a_continuation_says_so() -> None:
    response = Response("q1", continuation=True)
    frames = [
        response.chunk(0, "{}"),
        response.chunk(0, "{}", replay=True),
        response.replay_complete(),
        response.done(),
        response.error("x"),
    ]
    assert all(told(frame)["continuation"] is True for frame in frames)
    assert not any("messageIds" in told(frame) for frame in frames)


def test_handshake_frames_leave_out_what_is_unknown() -> None:
    assert told(protocol.resuming("d1")) == {
        "type": "cf_agent_stream_resuming",
        "id": "d1",
    }
    assert told(protocol.resuming("d1", "p"))["probeId"] == "p"
    assert told(protocol.pending("j1", "p")) == {
        "type": "cf_agent_stream_pending",
        "id": "j1",
        "probeId": "p",
    }
    assert told(protocol.resume_none("p")) == {
        "type": "cf_agent_stream_resume_none",
        "reason": "idle",
        "probeId": "p",
    }
    assert told(protocol.resume_none(reason=None)) == {
        "type": "cf_agent_stream_resume_none"
    }


def test_a_transcript_is_made_of_the_stored_texts() -> None:
    texts = [json.dumps(USER), '{"id":"a","role":"assistant","parts":[]}']
    frame = told(protocol.messages(texts, connect=True))
    assert frame["messages"] == [json.loads(text) for text in texts]
    assert frame["connect"] is True
    assert told(protocol.messages([])) == {
        "type": "cf_agent_chat_messages",
        "messages": [],
    }


@given(st.text(), st.text())
def test_every_frame_is_utf8_json_without_raw_line_ends(body: str, name: str) -> None:
    frames = [
        Response(name).error(body),
        Response(name).done(body),
        Response(name).chunk(1, json.dumps(body)),
        protocol.identity("agent", name),
        protocol.rpc_error(name, body),
    ]
    for frame in frames:
        assert told(frame)
        frame.encode()
        assert "\n" not in frame


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ChatAgent", "chat-agent"),
        ("AIChatAgent", "a-i-chat-agent"),
        ("MY_AGENT", "my-agent"),
        ("my_agent", "my-agent"),
        ("CHAT", "chat"),
        ("Chat2", "chat2"),
        ("MYAgent", "m-y-agent"),
        ("chatAgent_", "chat-agent"),
    ],
)
def test_agent_names_follow_the_rule_of_the_client(name: str, expected: str) -> None:
    assert kebab(name) == expected
