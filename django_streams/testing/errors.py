"""What the kit says when a test waits in vain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

_SHOWN = 20
"""Frames in a message; a reply of thousands would hide what is said first."""
_WIDTH = 200

CLOSE_CODES = {
    3011: "a failure on the server's side; see the log",
    4401: "no login, or a visitor without a session",
    4403: "not admitted: authorize(), the access policy or the name",
    4429: "frames came too fast",
}


class ClientError(AssertionError):
    """The client got something else than it waited for, or nothing.

    An ``AssertionError``, so that a test that fails by it counts as failed.
    """


class Refused(ClientError):
    """The agent closed the socket instead of letting the client in."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code
        """4401 without a login, 4403 where the agent does not admit."""


class CallError(ClientError):
    """A ``@callable`` method failed, or a state was refused; the text is what the
    client was told."""


def closed(code: int) -> str:
    """*code* in words."""
    meaning = CLOSE_CODES.get(code)
    return f"{code} ({meaning})" if meaning else str(code)


def report(what: str, frames: Sequence[dict[str, Any]]) -> str:
    """*what*, and the last of *frames*, one a line."""
    if not frames:
        return f"{what}; no frame came"
    left_out = len(frames) - _SHOWN
    lines = [_short(frame) for frame in frames[-_SHOWN:]]
    head = f"{what}; the frames that came"
    if left_out > 0:
        head += f" ({left_out} earlier ones left out)"
    return "\n  ".join([head + ":", *lines])


def _short(frame: dict[str, Any]) -> str:
    text = json.dumps(frame, ensure_ascii=False)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
