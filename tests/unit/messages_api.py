"""The event streams of the Messages API, as its server writes them."""

from __future__ import annotations

import json
from typing import Any

Block = tuple[dict[str, Any], list[dict[str, Any]]]
"""A block as it begins, and what is added to it."""

USAGE = {"input_tokens": 1, "output_tokens": 1}
MESSAGE: dict[str, Any] = {
    "id": "msg",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}


def frame(kind: str, **members: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind} | members)}\n\n"


def reply(*blocks: Block, why: str = "") -> str:
    """A whole reply: blocks as they begin, each with what is added to it."""
    frames = [frame("message_start", message=MESSAGE), frame("ping")]
    for index, (block, deltas) in enumerate(blocks):
        frames.append(frame("content_block_start", index=index, content_block=block))
        frames += [
            frame("content_block_delta", index=index, delta=one) for one in deltas
        ]
        frames.append(frame("content_block_stop", index=index))
    end = {"stop_reason": why or "end_turn", "stop_sequence": None}
    frames.append(frame("message_delta", delta=end, usage=USAGE))
    return "".join([*frames, frame("message_stop")])


def said(*texts: str, citations: tuple[dict[str, Any], ...] = ()) -> Block:
    deltas: list[dict[str, Any]] = [{"type": "text_delta", "text": t} for t in texts]
    deltas += [{"type": "citations_delta", "citation": one} for one in citations]
    return {"type": "text", "text": ""}, deltas


def thought(*texts: str, signature: str) -> Block:
    deltas = [{"type": "thinking_delta", "thinking": one} for one in texts]
    deltas.append({"type": "signature_delta", "signature": signature})
    return {"type": "thinking", "thinking": "", "signature": ""}, deltas


def call(
    name: str, *pieces: str, of: str = "tool_use", call_id: str = "toolu_1"
) -> Block:
    block = {"type": of, "id": call_id, "name": name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": one} for one in pieces]
