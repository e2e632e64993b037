"""What a tool returns, as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any


def to_json(value: Any) -> Any:
    """*value* in JSON: dataclasses are objects, sets and tuples arrays, members
    of an Enum their values. Raises ``TypeError`` that names what is none of it.
    """
    if isinstance(value, Enum):
        return to_json(value.value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {_key(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_json(item) for item in value), key=repr)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: to_json(getattr(value, one.name))
            for one in dataclasses.fields(value)
        }
    raise TypeError(
        f"{type(value).__name__} has no form in JSON: {str(value)[:60]!r}; return a "
        "str, number, bool, None, list, dict, Enum or dataclass"
    )


def _key(key: Any) -> str:
    key = key.value if isinstance(key, Enum) else key
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r} is not a str, as in JSON")
    return key
