"""Every frame on the protocol's page is one that is read or written."""

from __future__ import annotations

import json
import re
from typing import Any

from django_streams.chat import protocol
from django_streams.chat.protocol import Ignored, Malformed, Response
from tests.sizes import ROOT

PAGE = (ROOT / "docs/reference/chat-protocol.md").read_text(encoding="utf-8")


def examples(sections: str) -> list[Any]:
    """The frames under the headings that begin with *sections*."""
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    chosen = "".join(part for part in parts if part.startswith(sections))
    return [json.loads(e) for e in re.findall(r"```json\n(.*?)```", chosen, re.DOTALL)]


MESSAGE = '{"id":"u1","role":"user","parts":[]}'
CHUNK = '{"type":"text-delta","id":"q1","delta":"Hel"}'
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
    REPLY.chunk(3, CHUNK),
    REPLY.chunk(3, CHUNK, replay=True),
    REPLY.replay_complete(),
    REPLY.done(),
    REPLY.done(outcome="aborted"),
    REPLY.done(outcome="skipped"),
    REPLY.done(protocol.NO_RESPONSE, outcome="completed"),
    REPLY.done(replay=True),
    REPLY.error("Internal error (reference 1f2e3d4c)"),
    REPLY.error("Overloaded", done=False),
    REPLY.done(outcome="error"),
    protocol.chat_clear(),
    protocol.rpc_error("r1", "Method ping does not exist"),
]


def ordered(frames: list[Any]) -> list[str]:
    return sorted(json.dumps(frame, sort_keys=True) for frame in frames)


def test_the_server_s_frames_are_exactly_those_that_are_written() -> None:
    assert ordered(examples("From the server")) == ordered(
        [json.loads(frame) for frame in WRITTEN]
    )


def test_the_client_s_frames_are_all_read() -> None:
    frames = [
        protocol.parse(json.dumps(frame)) for frame in examples("From the client")
    ]
    assert not [f for f in frames if isinstance(f, (Ignored, Malformed))]
    assert len({type(frame) for frame in frames}) == len(frames) == 7


def test_every_type_of_frame_is_on_the_page() -> None:
    types = {v for v in vars(protocol).values() if str(v).startswith("cf_agent_")}
    assert types
    assert {kind for kind in types if f'"{kind}"' not in PAGE} == set()
