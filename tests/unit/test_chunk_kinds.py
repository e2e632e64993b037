"""Each kind of chunk, and the message that is kept of it.

One row for each row of the wire protocol's table of chunks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from django_streams.messages import Accumulator

Chunk = dict[str, Any]
Part = dict[str, Any]


class Row(NamedTuple):
    kind: str
    chunks: list[Chunk]
    parts: list[Part]
    message: dict[str, Any] = {}  # noqa: RUF012


def tool(kind: str, **members: Any) -> Chunk:
    return {"type": kind, "toolCallId": "c"} | members


STEP = {"type": "step-start"}
START = tool("tool-input-start", toolName="loc", title="Where", providerExecuted=True)
STARTED = {
    "type": "tool-loc",
    "toolName": "loc",
    "toolCallId": "c",
    "title": "Where",
    "providerExecuted": True,
}
INPUT = tool("tool-input-available", toolName="loc", input={"a": 1})
CALL = {
    "type": "tool-loc",
    "toolName": "loc",
    "toolCallId": "c",
    "input": {"a": 1},
}
REQUEST = tool("tool-approval-request", approvalId="p", approvalDescriptor={"d": 1})
REQUESTED = {"id": "p", "descriptor": {"d": 1}}
RESPONSE = {"type": "tool-approval-response", "approvalId": "p", "approved": True}
PROVIDER: dict[str, Any] = {"providerMetadata": {"provider": {"signature": "s"}}}


def text_rows(what: str) -> list[Row]:
    named = {"id": "t"} if what == "reasoning" else {}
    begin = {"type": f"{what}-start", "id": "t"}
    delta = {"type": f"{what}-delta", "id": "t", "delta": "he"}
    end = {"type": f"{what}-end", "id": "t"}
    part = {"type": what, "text": "", "state": "streaming"} | named
    done = part | {"text": "he", "state": "done"}
    return [
        Row(f"{what}-start", [begin], [part]),
        Row(f"{what}-delta", [begin, delta], [part | {"text": "he"}]),
        Row(f"{what}-end", [begin, delta, end], [done]),
        Row(f"{what}-end", [begin, delta, end | PROVIDER], [done | PROVIDER]),
    ]


WHOLE: list[Part] = [
    {"type": "file", "mediaType": "image/png", "url": "data:x"},
    {"type": "source-url", "sourceId": "s", "url": "u", "title": "T"} | PROVIDER,
    {
        "type": "source-document",
        "sourceId": "s",
        "mediaType": "text/plain",
        "title": "T",
        "filename": "f.txt",
    },
    {"type": "reasoning-file", "mediaType": "image/png", "url": "data:x"},
    {"type": "custom", "kind": "provider.kind"} | PROVIDER,
    {"type": "steering-message", "id": "s", "parts": []},
]

ROWS = [
    Row(
        "start",
        [{"type": "start", "messageId": "a9", "messageMetadata": {"m": 1}}],
        [],
        {"id": "a9", "metadata": {"m": 1}},
    ),
    Row("start-step", [{"type": "start-step"}], [STEP]),
    Row("step-start", [{"type": "step-start"}], [STEP]),
    Row("finish-step", [{"type": "start-step"}, {"type": "finish-step"}], [STEP]),
    *text_rows("text"),
    *text_rows("reasoning"),
    *(Row(part["type"], [part | {"other": 1}], [part]) for part in WHOLE),
    Row("tool-input-start", [START], [STARTED | {"state": "input-streaming"}]),
    Row(
        "tool-input-delta",
        [START, tool("tool-input-delta", inputTextDelta='{"a"')],
        [STARTED | {"state": "input-streaming"}],
    ),
    Row("tool-input-available", [INPUT], [CALL | {"state": "input-available"}]),
    Row(
        "tool-input-available",
        [START, INPUT],
        [STARTED | CALL | {"state": "input-available"}],
    ),
    Row(
        "tool-input-available",
        [INPUT | {"dynamic": True}],
        [CALL | {"type": "dynamic-tool", "state": "input-available"}],
    ),
    Row(
        "tool-input-error",
        [tool("tool-input-error", toolName="loc", input={"a": 1}, errorText="bad")],
        [CALL | {"state": "output-error", "errorText": "bad"}],
    ),
    Row(
        "tool-approval-request",
        [INPUT, REQUEST],
        [CALL | {"state": "approval-requested", "approval": REQUESTED}],
    ),
    Row(
        "tool-approval-request",
        [START, tool("tool-input-delta", inputTextDelta='{"a": 1}'), REQUEST],
        [
            STARTED
            | CALL
            | {"state": "approval-requested", "approval": REQUESTED, "input": {"a": 1}}
        ],
    ),
    Row(
        "tool-approval-response",
        [INPUT, REQUEST, RESPONSE],
        [
            CALL
            | {
                "state": "approval-responded",
                "approval": REQUESTED | {"approved": True},
            }
        ],
    ),
    Row(
        "tool-output-available",
        [INPUT, tool("tool-output-available", output=[1], preliminary=True)],
        [CALL | {"state": "output-available", "output": [1], "preliminary": True}],
    ),
    Row(
        "tool-output-available",
        [
            INPUT,
            tool("tool-output-available", output=1, preliminary=True),
            tool("tool-output-available", output=2),
        ],
        [CALL | {"state": "output-available", "output": 2}],
    ),
    Row(
        "tool-output-error",
        [INPUT, tool("tool-output-error", errorText="no")],
        [CALL | {"state": "output-error", "errorText": "no"}],
    ),
    Row(
        "tool-output-denied",
        [INPUT, REQUEST, tool("tool-output-denied")],
        [CALL | {"state": "output-denied", "approval": REQUESTED}],
    ),
    Row(
        "data",
        [
            {"type": "data-w", "id": "1", "data": 1},
            {"type": "data-w", "data": 2},
            {"type": "data-w", "id": "1", "data": 3},
            {"type": "data-w", "id": "2", "data": 4, "transient": True},
        ],
        [{"type": "data-w", "id": "1", "data": 3}, {"type": "data-w", "data": 2}],
    ),
    Row(
        "message-metadata",
        [
            {"type": "start", "messageMetadata": {"usage": {"in": 1}}},
            {"type": "message-metadata", "messageMetadata": {"usage": {"out": 2}}},
        ],
        [],
        {"metadata": {"usage": {"in": 1, "out": 2}}},
    ),
    Row(
        "finish",
        [{"type": "finish", "finishReason": "stop", "messageMetadata": {"t": 2}}],
        [],
        {"metadata": {"t": 2}},
    ),
    Row(
        "reset-step",
        [
            {"type": "start-step"},
            {"type": "text-start", "id": "1"},
            {"type": "text-delta", "id": "1", "delta": "kept"},
            {"type": "start-step"},
            {"type": "text-start", "id": "2"},
            {"type": "text-delta", "id": "2", "delta": "dropped"},
            {"type": "reset-step"},
        ],
        [STEP, {"type": "text", "text": "kept", "state": "streaming"}, STEP],
    ),
    *(
        Row(kind, [{"type": kind, "id": "1", "delta": "d", "errorText": "e"}], [])
        for kind in ("abort", "error", "unknown", "text-x", "tool-x", "")
    ),
]


@pytest.mark.parametrize(
    "row", ROWS, ids=[f"{i}-{row.kind}" for i, row in enumerate(ROWS)]
)
def test_a_chunk_makes_of_the_message_what_the_table_says(row: Row) -> None:
    accumulator = Accumulator("a1")
    for chunk in row.chunks:
        assert accumulator.forwarded(chunk) == [chunk]
        accumulator.apply(chunk)
    plain = {"id": "a1", "role": "assistant", "parts": row.parts}
    assert accumulator.message == plain | row.message
