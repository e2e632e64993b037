"""The message a page builds is the message the server stores."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from django_streams.messages.accumulator import Accumulator

pytestmark = pytest.mark.needs("node")

SCRIPT = Path(__file__).parent / "js" / "build.mjs"
ROUNDS = 4000

Chunk = dict[str, Any]


def test_page_and_server_make_the_same_message_of_any_chunks() -> None:
    source = random.Random(20)  # noqa: S311
    replies = [random_reply(source) for _ in range(ROUNDS)]
    done = subprocess.run(
        ["node", str(SCRIPT)],
        input=json.dumps(replies),
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    for chunks, message in zip(replies, built, strict=True):
        accumulator = Accumulator("a1")
        for chunk in chunks:
            accumulator.apply(chunk)
        assert message == accumulator.message, chunks


def random_reply(source: random.Random) -> list[Chunk]:
    """Chunks of a few kinds, so that they meet each other."""
    kinds = source.sample(list(MEMBERS), source.randrange(1, 7))
    return [random_chunk(source, kinds) for _ in range(source.randrange(1, 20))]


def random_chunk(source: random.Random, kinds: list[str]) -> Chunk:
    """A chunk as providers send them, sometimes at the wrong place or damaged."""
    kind = source.choice(kinds)
    chunk: Chunk = {"type": kind}
    for key in MEMBERS[kind]:
        if source.random() < 0.85:
            chunk[key] = source.choice(VALUES[key])
    return chunk


MEMBERS: dict[str, tuple[str, ...]] = {
    "start": ("messageMetadata",),
    "start-step": (),
    "reset-step": (),
    "step-start": (),
    "finish-step": (),
    "text-start": ("id", "providerMetadata"),
    "text-delta": ("id", "delta"),
    "text-end": ("id", "providerMetadata", "citations"),
    "reasoning-start": ("id",),
    "reasoning-delta": ("id", "delta", "providerMetadata"),
    "reasoning-end": ("id", "providerMetadata"),
    "tool-input-start": ("toolCallId", "toolName", "dynamic", "title"),
    "tool-input-delta": ("toolCallId", "inputTextDelta"),
    "tool-input-available": (
        "toolCallId",
        "toolName",
        "input",
        "providerExecuted",
        "providerMetadata",
        "toolMetadata",
    ),
    "tool-input-error": ("toolCallId", "toolName", "errorText", "input"),
    "tool-approval-request": (
        "toolCallId",
        "approvalId",
        "approvalDescriptor",
        "isAutomatic",
        "reason",
    ),
    "tool-approval-response": ("approvalId", "approved", "reason", "providerMetadata"),
    "tool-output-available": (
        "toolCallId",
        "output",
        "preliminary",
        "providerMetadata",
    ),
    "tool-output-error": ("toolCallId", "errorText"),
    "tool-output-denied": ("toolCallId",),
    "data-x": ("id", "data", "transient"),
    "file": ("mediaType", "url", "filename"),
    "reasoning-file": ("mediaType", "url"),
    "custom": ("kind", "providerMetadata"),
    "steering-message": ("id", "parts"),
    "source-url": ("sourceId", "url", "title", "providerMetadata"),
    "source-document": ("sourceId", "mediaType", "title", "filename"),
    "message-metadata": ("messageMetadata",),
    "finish": ("finishReason", "messageMetadata"),
    "abort": (),
    "what": (),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "id": ("1", "2"),
    "delta": ("a", "b ", "", 7),
    "toolCallId": ("c1", "c2", "", 7),
    "toolName": ("search", "look"),
    "dynamic": (True, False),
    "title": ("Search",),
    "inputTextDelta": ('{"q":', "1}", "{"),
    "input": ({"q": 1}, '{"q": 2}', "{", [1], "text", 7, None),
    "providerExecuted": (True, False),
    "errorText": ("no",),
    "approvalId": ("p1", 7),
    "approved": (True, False),
    "isAutomatic": (True, False),
    "reason": ("why",),
    "toolMetadata": ({"m": 1},),
    "citations": ([{"a": 1}],),
    "kind": ("provider.kind",),
    "parts": ([{"type": "text", "text": "t"}],),
    "approvalDescriptor": ({"a": 1},),
    "output": ({"hits": 3}, "text", None, 0, False, []),
    "preliminary": (True,),
    "data": (1, {"a": 1}, None),
    "transient": (True, False, 1),
    "mediaType": ("image/png",),
    "url": ("https://a.example/",),
    "filename": ("a.png",),
    "sourceId": ("s1",),
    "finishReason": ("stop",),
    "messageMetadata": (
        {"a": 1},
        {"a": {"b": 1}},
        {"a": {"c": 2}, "constructor": 1},
        7,
        None,
    ),
    "providerMetadata": ({"p": {"a": 1}}, {"q": 1}, 7),
}
