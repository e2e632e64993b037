"""The policies that an agent names by its attributes, as values. Pure.

What a submit does while another turn of its conversation runs or waits is a
table (:func:`decide`); the queue carries the row out in the transaction of the
submit, so the processes cannot disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

SUBMIT: Final = "submit-message"
"""The only trigger that can be overtaken or refused; all others wait in line."""
REGENERATE: Final = "regenerate-message"
SAVE: Final = "save-messages"
CONTINUE: Final = "continue-last-turn"
"""What code asks for."""

MODES: Final = ("queue", "latest", "merge", "drop")


@dataclass(frozen=True, slots=True)
class Debounce:
    """As ``"latest"``, and what is left waits until *seconds* after its submit.

    The default is the official server's. ``ValueError`` for what is no time.
    """

    seconds: float = 0.75

    def __post_init__(self) -> None:
        _check_seconds("Debounce", self.seconds)


@dataclass(frozen=True, slots=True)
class CancelAfter:
    """Stop a turn once nobody has watched it for *seconds*.

    Counted over all processes. ``ValueError`` for what is no time.
    """

    seconds: float

    def __post_init__(self) -> None:
        _check_seconds("CancelAfter", self.seconds)


Concurrency: TypeAlias = Literal["queue", "latest", "merge", "drop"] | Debounce
Unwatched: TypeAlias = Literal["continue"] | CancelAfter


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a submit."""

    accept: bool = True
    """False: nothing is stored, and its turn ends as skipped."""
    overlapping: bool = False
    """A later one overtakes it unless it runs by then."""
    overtake: bool = False
    """Those that overlap and still wait end as skipped."""
    join: bool = False
    """The messages of those it overtakes become one with its own."""
    delay: float | None = None
    """Seconds from the submit before which it does not run."""


_IN_LINE = Decision()


def decide(mode: Concurrency, trigger: str, *, overlaps: bool) -> Decision:
    """What becomes of a request that *overlaps* turns that run or wait.

    The first of several submits overlaps nothing: it runs, and none overtakes
    it. Regenerations, continuations and what code asks for wait in line.
    """
    if mode == "queue" or trigger != SUBMIT or not overlaps:
        return _IN_LINE
    if mode == "drop":
        return Decision(accept=False)
    return Decision(
        overlapping=True,
        overtake=True,
        join=mode == "merge",
        delay=mode.seconds if isinstance(mode, Debounce) else None,
    )


def _check_seconds(what: str, value: object) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise ValueError(
            f"{what}({value!r}): the seconds must be a number that is finite and "
            f"not negative, such as {what}(0.75)"
        )
