"""What the parts of a message are, for every module that reads or changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

Chunk: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, Any]
UIMessage: TypeAlias = dict[str, Any]

SETTLED = frozenset(("output-available", "output-error", "output-denied"))
"""States in which a tool call is over."""

ANSWERABLE = frozenset(("input-available", "approval-requested", "approval-responded"))
"""States in which a call waits for somebody outside of the model's stream."""

# The keys that an unwary merge in JavaScript would take for its prototype; the
# clients leave them out, so the stored metadata does too.
_REFUSED_KEYS = frozenset(("__proto__", "constructor", "prototype"))


def is_tool(part: Mapping[str, Any]) -> bool:
    """Whether *part* is a tool call, of a static or a dynamic tool."""
    kind = part.get("type")
    return isinstance(kind, str) and (
        kind == "dynamic-tool" or kind.startswith("tool-")
    )


def tool_name(part: Mapping[str, Any]) -> str:
    """The tool that a tool part calls; "" where the part does not say."""
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith("tool-"):
        return kind.removeprefix("tool-")
    name = part.get("toolName")
    return name if isinstance(name, str) else ""


def parts_of(message: Mapping[str, Any]) -> list[Part]:
    """The parts of a message that are objects; of anything else none."""
    parts = message.get("parts")
    if not isinstance(parts, list):
        return []
    return [part for part in parts if isinstance(part, dict)]


def tool_parts(message: Mapping[str, Any]) -> Iterator[Part]:
    """The tool calls of a message that can be named by an id."""
    for part in parts_of(message):
        if is_tool(part) and isinstance(part.get("toolCallId"), str):
            yield part


def as_object(value: object) -> dict[str, Any]:
    """A tool input as the JSON object it must be; ``{}`` for anything else.

    Providers refuse a call whose input is no object, and what is stored is
    told to them again at every turn.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """*old* with *new* in it, objects merged key by key; neither is changed."""
    result = dict(old)
    left = [(result, new)]
    while left:
        target, source = left.pop()
        for key, value in source.items():
            if key in _REFUSED_KEYS:
                continue
            known = target.get(key)
            if isinstance(known, dict) and isinstance(value, dict):
                target[key] = dict(known)
                left.append((target[key], value))
            else:
                target[key] = value
    return result


def truthy(value: object) -> bool:
    """Whether JavaScript takes a JSON *value* for true: a flag is read by clients
    in this way, whatever the handler wrote."""
    return isinstance(value, (list, dict)) or bool(value)


def copy_known(source: Chunk, target: Part, *keys: str) -> None:
    """Copy those of *keys* that have a value."""
    for key in keys:
        if source.get(key) is not None:
            target[key] = source[key]
