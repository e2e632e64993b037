"""Results and approvals of tool calls that come from elsewhere than the model.

Each function returns what has changed and leaves what it was given as it is;
None means that there is nothing to change, as for an answer that came twice:
the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from .parts import (
    ANSWERABLE,
    SETTLED,
    Chunk,
    Part,
    UIMessage,
    parts_of,
    tool_name,
    tool_parts,
)

Change: TypeAlias = Callable[[Part], Part | None]
"""Makes another part of a part; None for one that it leaves alone."""

REFUSED_TEXT = "Tool execution denied by user"
"""What a failed call says when the client gave no reason."""

FAILED_TEXT = "Tool execution failed"

_PENDING = frozenset(("input-available", "approval-requested"))


def tool_result(
    call_id: str,
    output: Any = None,
    *,
    failed: bool = False,
    error_text: str | None = None,
) -> Change:
    """The result of a call that a client, or a person, has run.

    With *failed* it is an error, told to the model as *error_text*.
    """

    def change(part: Part) -> Part | None:
        if part.get("toolCallId") != call_id or part.get("state") not in ANSWERABLE:
            return None
        if failed:
            text = REFUSED_TEXT if error_text is None else error_text
            return part | {"state": "output-error", "errorText": text}
        return part | {
            "state": "output-available",
            "output": output,
            "preliminary": False,
        }

    return change


def tool_approval(call_id: str, approved: bool) -> Change:
    """Somebody has allowed a call, or not."""

    def change(part: Part) -> Part | None:
        if part.get("toolCallId") != call_id or part.get("state") not in _PENDING:
            return None
        known = part.get("approval")
        approval = known if isinstance(known, dict) else {}
        asked = approval.get("id")
        answer = {
            "id": asked if isinstance(asked, str) else call_id,
            "approved": approved,
        }
        state = "approval-responded" if approved else "output-denied"
        return part | {"state": state, "approval": approval | answer}

    return change


def late_output(chunk: Chunk) -> Change | None:
    """The change that an output makes in an earlier message than the one that is
    being written; None for a chunk that is no output of a call."""
    kind, call_id = chunk.get("type"), chunk.get("toolCallId")
    if kind not in ("tool-output-available", "tool-output-error"):
        return None
    if not isinstance(call_id, str) or not call_id:
        return None

    def change(part: Part) -> Part | None:
        if part.get("toolCallId") != call_id or part.get("state") in SETTLED:
            return None
        if kind == "tool-output-error":
            text = chunk.get("errorText")
            text = text if isinstance(text, str) else FAILED_TEXT
            return part | {"state": "output-error", "errorText": text}
        return part | {
            "state": "output-available",
            "output": chunk.get("output"),
            "preliminary": chunk.get("preliminary") is True,
        }

    return change


def changed(messages: Sequence[UIMessage], change: Change) -> UIMessage | None:
    """The newest message in which *change* changes a part, with that change."""
    for message in reversed(messages):
        if message.get("role") != "assistant":
            continue
        parts = message.get("parts")
        for at, part in enumerate(parts if isinstance(parts, list) else ()):
            new = change(part) if isinstance(part, dict) else None
            if parts is not None and new is not None:
                return message | {"parts": [*parts[:at], new, *parts[at + 1 :]]}
    return None


def carried_over(reply: UIMessage, stored: UIMessage) -> UIMessage:
    """*reply*, a finished message, with the answers that its stored copy got.

    A message whose approval is asked for is stored at once; what people answer
    until the reply ends is written there, and nowhere in the reply's chunks.
    """
    answers = {
        part["toolCallId"]: part
        for part in tool_parts(stored)
        if part.get("state") in SETTLED or part.get("state") == "approval-responded"
    }
    parts = [
        answers[part["toolCallId"]]
        if part.get("state") in _PENDING and part.get("toolCallId") in answers
        else part
        for part in parts_of(reply)
    ]
    return reply | {"parts": parts}


def is_half_answered(messages: Sequence[UIMessage]) -> bool:
    """Whether the newest reply waits for some of its calls and has the others.

    A model that called several tools at once must hear of all of them together.
    """
    for message in reversed(messages):
        if message.get("role") == "assistant":
            states = {part.get("state") for part in tool_parts(message)}
            answered = SETTLED | {"approval-responded"}
            return bool(states & _PENDING) and bool(states & answered)
    return False


def awaits_client(part: Part, client_tools: Collection[str]) -> bool:
    """Whether a client may still answer a call: an approval that was asked for,
    or one of the tools that it said it runs itself."""
    if part.get("state") == "approval-requested":
        return True
    return part.get("state") == "input-available" and tool_name(part) in client_tools


def has_pending_interaction(
    messages: Sequence[UIMessage], client_tools: Collection[str]
) -> bool:
    """Whether the newest reply waits for something that a client has to answer."""
    for message in reversed(messages):
        if message.get("role") == "assistant":
            return any(
                awaits_client(part, client_tools) for part in tool_parts(message)
            )
    return False


def client_tool_names(client_tools: Sequence[Any] | None) -> frozenset[str]:
    """The names in a client's list of its tools; what is malformed has none."""
    return frozenset(
        tool["name"]
        for tool in client_tools or ()
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"]
    )
