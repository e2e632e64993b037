"""What a client's copy of an assistant's message adds to the stored one."""

from __future__ import annotations

from .calls import overlaid, same_call, same_json, settled_calls
from .parts import ANSWERABLE, SETTLED, Part, UIMessage, is_tool, merged, parts_of
from .sanitiser import sanitise

# How far a call has come; of two copies the farther one is the later one.
_RANK = {
    "input-streaming": 0,
    "input-available": 1,
    "approval-requested": 2,
    "approval-responded": 3,
} | dict.fromkeys(SETTLED, 4)


def taken(copy: UIMessage, stored: UIMessage) -> UIMessage | None:
    """The assistant's message to store after a client sent *copy* of *stored*.

    None when the stored one stays. Results that the client has for calls which
    are open on the stored message are taken over. Beyond that, a copy that is
    merely behind (the client has missed the end of the reply) changes nothing,
    and one that says something else replaces the message: it was edited.
    """
    answered = _answered(stored, copy)
    current = answered or stored
    copy = sanitise(copy)
    if _is_behind(parts_of(copy), parts_of(current)):
        return answered
    result = copy | {"id": stored["id"], "role": stored["role"]}
    metadata = stored.get("metadata")
    if isinstance(metadata, dict):
        told = copy.get("metadata")
        result["metadata"] = merged(metadata, told if isinstance(told, dict) else {})
    result = overlaid(result, settled_calls(current))
    return None if same_json(result, stored) else result


def _answered(stored: UIMessage, copy: UIMessage) -> UIMessage | None:
    """*stored* with the results that *copy* has; None if it has none."""
    waiting = {
        part["toolCallId"]: part
        for part in parts_of(stored)
        if isinstance(part.get("toolCallId"), str) and part.get("state") in ANSWERABLE
    }
    results = {
        call_id: part
        for call_id, part in settled_calls(copy).items()
        if call_id in waiting and same_call(waiting[call_id], part)
    }
    return overlaid(stored, results) if results else None


def _is_behind(copy: list[Part], current: list[Part]) -> bool:
    """Whether a copy says nothing that the current message does not say."""
    copy, current = _said(copy), _said(current)
    return len(copy) <= len(current) and all(
        _part_is_behind(one, other) for one, other in zip(copy, current, strict=False)
    )


def _said(parts: list[Part]) -> list[Part]:
    return [part for part in parts if part.get("type") != "step-start"]


def _part_is_behind(copy: Part, current: Part) -> bool:
    if copy.get("type") != current.get("type"):
        return False
    if is_tool(copy):
        return bool(
            copy.get("toolCallId") == current.get("toolCallId")
            and _RANK.get(str(copy.get("state")), 0)
            <= _RANK.get(str(current.get("state")), 0)
        )
    text, known = copy.get("text"), current.get("text")
    if isinstance(text, str) and isinstance(known, str):
        return known.startswith(text)
    return all(
        same_json(copy.get(key), current.get(key)) for key in ("id", "url", "sourceId")
    )
