"""What an agent's class attributes may be, asked when the class is made."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

from django.utils.functional import Promise

from ..ids import MAX_OWNER_LENGTH
from ..tools import ToolSet
from ..turns.agents import KINDS, ON_INTERRUPTED
from ..turns.policy import MODES, CancelAfter, Debounce

MAX_NAME = 128
"""Characters of an agent's name in the database."""

Rule = tuple[Callable[[Any], bool], str]


def check(cls: type) -> None:
    """Raise ``ValueError`` for the first attribute that cannot be, with its value
    and what it may be."""
    for name, (fits, wanted) in RULES.items():
        value = getattr(cls, name, None)
        if hasattr(cls, name) and not fits(value):
            raise ValueError(
                f"{name} of {cls.__qualname__} is {value!r}; it must be {wanted}"
            )
    _check_tools(cls)


def _check_tools(cls: type) -> None:
    try:
        tools = ToolSet(getattr(cls, "tools", ()))
    except (TypeError, ValueError) as error:
        raise ValueError(f"tools of {cls.__qualname__}: {error}") from error
    for one in tools:
        if "self" in inspect.signature(one.function).parameters:
            raise ValueError(
                f"tools of {cls.__qualname__}: {one.name} has a parameter self, which "
                "nobody would pass; write it outside of the class, and take turn"
            )


def check_owner(cls: type, value: Any) -> str | None:
    """What ``conversation_owner`` returned, or ``ValueError`` if it is no owner key."""
    if value is None or (isinstance(value, str) and len(value) <= MAX_OWNER_LENGTH):
        return value
    raise ValueError(
        f"conversation_owner of {cls.__qualname__} returned {value!r:.200}; it must be "
        f'None, "" or an owner key of at most {MAX_OWNER_LENGTH} characters, such as '
        'django_streams.access.user_key(user) or "team:7"'
    )


def _is_name(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= MAX_NAME
        and value.isprintable()
        and "/" not in value
    )


def _is_text(value: Any) -> bool:
    # A lazy translation is one.
    return isinstance(value, str | Promise)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_mode(value: Any) -> bool:
    return isinstance(value, Debounce) or (isinstance(value, str) and value in MODES)


def _is_unwatched(value: Any) -> bool:
    return value == "continue" or isinstance(value, CancelAfter)


def _counts(least: int) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return whole and value >= least

    return fits


def _is_limit(value: Any) -> bool:
    return value is None or _counts(1)(value)


def _is_time_or_none(value: Any) -> bool:
    if value is None:
        return True
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0


def _is_tools(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(map(callable, value))


RULES: dict[str, Rule] = {
    "agent_name": (
        _is_name,
        f"1 to {MAX_NAME} printable characters without a slash",
    ),
    "title": (_is_text, "a string"),
    "resume": (_is_bool, "True or False"),
    "allow_anonymous": (_is_bool, "True or False"),
    "message_concurrency": (
        _is_mode,
        '"queue", "latest", "merge", "drop" or Debounce(seconds)',
    ),
    "max_persisted_messages": (_is_limit, "None or a whole number from 1"),
    "stall_timeout": (_is_time_or_none, "None or a number of seconds above 0"),
    "when_unwatched": (_is_unwatched, '"continue" or CancelAfter(seconds)'),
    "on_interrupted": (
        lambda value: isinstance(value, str) and value in ON_INTERRUPTED,
        '"continue", "restart" or "fail"',
    ),
    "max_recovery_attempts": (_counts(0), "a whole number from 0"),
    "tools": (_is_tools, "a list of functions"),
    "max_tool_steps": (_counts(1), "a whole number from 1"),
    "runner": (
        lambda value: value is None or (isinstance(value, str) and value in KINDS),
        f"None or one of {', '.join(map(repr, KINDS))}",
    ),
}
