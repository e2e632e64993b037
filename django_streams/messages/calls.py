"""Tool calls of different copies of a message: which are one, and how they end."""

from __future__ import annotations

from typing import Any

from .parts import ANSWERABLE, SETTLED, Part, UIMessage, as_object, parts_of

# The member that comes with each settled state: of another one, left over from an
# earlier state, nothing rides along.
_RESULT_OF = {
    "output-available": "output",
    "output-error": "errorText",
    "output-denied": "approval",
}


def same_json(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, in whatever order their keys are.

    1 and 1.0 are, as they are in JavaScript; 1 and true are not.
    """
    left = [(one, other)]
    while left:
        a, b = left.pop()
        if isinstance(a, dict) and isinstance(b, dict):
            if a.keys() != b.keys():
                return False
            left.extend((a[key], b[key]) for key in a)
        elif isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return False
            left.extend(zip(a, b, strict=True))
        elif isinstance(a, bool) or isinstance(b, bool):
            if a is not b:
                return False
        elif a != b:
            return False
    return True


def same_call(one: Part, other: Part) -> bool:
    """Whether two parts with one call id are the same call: providers reuse ids."""
    names = {part["toolName"] for part in (one, other) if "toolName" in part}
    return (
        one.get("type") == other.get("type")
        and len(names) <= 1
        and same_json(as_object(one.get("input")), as_object(other.get("input")))
    )


def calls_of(message: UIMessage) -> dict[str, Part]:
    """The tool calls by id; of several with one id the first."""
    calls: dict[str, Part] = {}
    for part in parts_of(message):
        if isinstance(part.get("toolCallId"), str):
            calls.setdefault(part["toolCallId"], part)
    return calls


def settled_calls(message: UIMessage) -> dict[str, Part]:
    return {
        part["toolCallId"]: part
        for part in parts_of(message)
        if isinstance(part.get("toolCallId"), str) and part.get("state") in SETTLED
    }


def overlaid(message: UIMessage, results: dict[str, Part]) -> UIMessage:
    """*message* with the results of calls that it still waits for."""
    if not results:
        return message
    parts = [
        _with_result(part, results[part["toolCallId"]])
        if isinstance(part, dict)
        and part.get("state") in ANSWERABLE
        and part.get("toolCallId") in results
        else part
        for part in message["parts"]
    ]
    return message | {"parts": parts}


def _with_result(part: Part, settled: Part) -> Part:
    key = _RESULT_OF[settled["state"]]
    result = part | {"state": settled["state"]}
    return result | {key: settled[key]} if key in settled else result
