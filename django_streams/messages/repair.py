"""Tool calls that nobody will ever answer get an answer.

Providers refuse a transcript in which a call has no result or an input that is
no object; a run that was interrupted leaves both behind.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .answers import awaits_client
from .parts import SETTLED, Part, UIMessage, as_object, is_tool

INTERRUPTED_TEXT = "The tool call was interrupted before a result was recorded."
NOT_RUN_TEXT = (
    "The tool call was approved but did not run before the next turn started."
)


def repaired(
    messages: Sequence[UIMessage],
    *,
    client_tools: Collection[str] = (),
    continues: bool = False,
) -> list[UIMessage]:
    """The messages of *messages* that had to be changed, as they are now.

    A call that is open ends as an error, unless a client may still answer it (a
    tool named in *client_tools*, an approval that was asked for). One that was
    approved is left to the continuation that will run it: where *continues* says
    that one runs or waits, and in the last message. Inputs become objects.
    """
    last = len(messages) - 1
    changed = []
    for at, message in enumerate(messages):
        parts = message.get("parts")
        if not isinstance(parts, list):
            continue
        keep_approved = continues or at == last
        new = [_repaired(part, client_tools, keep_approved) for part in parts]
        if any(one is not other for one, other in zip(new, parts, strict=True)):
            changed.append(message | {"parts": new})
    return changed


def _repaired(part: Part, client_tools: Collection[str], keep_approved: bool) -> Part:
    if not isinstance(part, dict) or not is_tool(part):
        return part
    if not isinstance(part.get("toolCallId"), str) or not part["toolCallId"]:
        return part
    if not _is_settled(part):
        approved = part.get("state") == "approval-responded"
        if (approved and keep_approved) or awaits_client(part, client_tools):
            return part
        return _with_object(part) | _end(part, approved)
    return _with_object(part)


def _is_settled(part: Part) -> bool:
    return "output" in part or "result" in part or part.get("state") in SETTLED


def _end(part: Part, approved: bool) -> Part:
    approval = part.get("approval")
    if approved and isinstance(approval, dict) and approval.get("approved") is False:
        return {"state": "output-denied"}
    text = NOT_RUN_TEXT if approved else INTERRUPTED_TEXT
    return {"state": "output-error", "errorText": text}


def _with_object(part: Part) -> Part:
    """The part itself where its input is an object already."""
    if isinstance(part.get("input"), dict):
        return part
    return part | {"input": as_object(part.get("input"))}
