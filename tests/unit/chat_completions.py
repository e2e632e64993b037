"""The event streams of chat completions, as their servers write them."""

from __future__ import annotations

import json
from typing import Any

DONE = "data: [DONE]\n\n"


def frame(told: Any) -> str:
    return f"data: {json.dumps(told)}\n\n"


def event(**delta: Any) -> str:
    return frame(
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
    )


def calls(*pieces: tuple[int, str | None, str]) -> list[str]:
    """Tool calls as they are written: index, name (once) and arguments."""
    return [
        event(
            tool_calls=[
                {
                    "index": index,
                    **({"id": "call_0", "type": "function"} if name else {}),
                    "function": {"name": name, "arguments": text},
                }
            ]
        )
        for index, name, text in pieces
    ]
