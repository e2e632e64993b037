"""Every frame on the protocol's page is one that is read or written.

That an agent answers by them is held in `integration/test_chat_page.py`.
"""

from __future__ import annotations

import json
from typing import Any

from django_streams.chat import protocol
from django_streams.chat.protocol import Ignored, Malformed, Response
from tests.pages import CLIENT, PAGE, SERVER, examples

MESSAGE = '{"id":"u1","role":"user","parts":[]}'
CHUNK = '{"type":"text-delta","id":"q1","delta":"Hel"}'
ANSWERED = json.dumps(
    {
        "id": "a1",
        "role": "assistant",
        "parts": [
            {
                "type": "tool-location",
                "toolCallId": "t1",
                "toolName": "location",
                "state": "output-available",
                "input": {},
                "output": {"city": "Oslo"},
                "preliminary": False,
            }
        ],
    }
)
REPLY = Response("q1", message_ids=["u1"])

WRITTEN = [
    protocol.identity("support-agent", "room1"),
    protocol.messages([MESSAGE], connect=True),
    protocol.messages([MESSAGE]),
    protocol.resuming("q1"),
    protocol.resuming("q1", "p1"),
    protocol.pending("q1", "p1"),
    protocol.resume_none("p1"),
    protocol.resume_none(reason=None),
    protocol.recovering("q1", on=True),
    protocol.recovering("q1", on=False),
    REPLY.chunk(3, CHUNK),
    REPLY.chunk(3, CHUNK, replay=True),
    REPLY.replay_complete(),
    REPLY.done(),
    REPLY.done(outcome="aborted"),
    REPLY.done(outcome="skipped"),
    REPLY.done(outcome="recovering"),
    REPLY.done(protocol.NO_RESPONSE, outcome="completed"),
    REPLY.done(replay=True),
    REPLY.error("Internal error (reference 1f2e3d4c)"),
    REPLY.error("Overloaded", done=False),
    REPLY.done(outcome="error"),
    protocol.chat_clear(),
    protocol.resume_none("p1", "continuation-owned"),
    Response("c1", continuation=True).chunk(0, '{"type":"start"}'),
    protocol.message_updated(ANSWERED),
    protocol.identity("support-agent", "room1", state_follows=True),
    protocol.state('{"theme":"light"}'),
    protocol.state('{"theme":"dark"}'),
    protocol.state_error(protocol.REJECTED),
    protocol.state_error(protocol.READ_ONLY),
    protocol.rpc_result("r1", "1", done=False),
    protocol.rpc_result("r1", "3"),
    protocol.rpc_error("r1", "Method add does not exist"),
]


def ordered(frames: list[Any]) -> list[str]:
    return sorted(json.dumps(frame, sort_keys=True) for frame in frames)


def test_the_server_s_frames_are_exactly_those_that_are_written() -> None:
    assert ordered(examples(SERVER)) == ordered(
        [json.loads(frame) for frame in WRITTEN]
    )


def test_the_client_s_frames_are_all_read() -> None:
    frames = [protocol.parse(json.dumps(frame)) for frame in examples(CLIENT)]
    assert not [f for f in frames if isinstance(f, (Ignored, Malformed))]
    assert len({type(frame) for frame in frames}) == len(frames) == 10


def test_every_type_of_frame_is_on_the_page() -> None:
    types = {v for v in vars(protocol).values() if str(v).startswith("cf_agent_")}
    assert types
    assert {kind for kind in types if f'"{kind}"' not in PAGE} == set()
