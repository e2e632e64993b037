"""Which JSON values are messages that can be kept."""

from __future__ import annotations

from typing import Any, TypeGuard

from .. import codec, ids
from .parts import UIMessage

ROLES = ("user", "assistant", "system")


def is_message(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether *value* has an id, a known role and a list of parts, maybe empty."""
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        return False
    parts = value.get("parts")
    return (
        _is_id(value.get("id"))
        and isinstance(parts, list)
        and all(isinstance(part, dict) for part in parts)
    )


def read(text: str) -> UIMessage | None:
    """The message that a JSON text holds; None if it holds none."""
    try:
        value = codec.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if is_message(value) else None


def _is_id(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        ids.check_id(value, "id")
    except ValueError:
        return False
    return True
