"""Where a reader of events begins. Pure: strings and numbers in, a plan out."""

from __future__ import annotations

import re
from dataclasses import dataclass

_POSITION = re.compile(r"[0-9]{1,18}")
_BLANKS = " \t\r\n\f\v"


class InvalidPosition(ValueError):
    """``?from=`` is not a position; the message may be shown to the client."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The seq that the client asks for, and whether it named a last event."""

    position: int
    after_event: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What to answer: from where, after a reset or not, or nothing at all."""

    start: int
    reset: bool = False
    end_seen: bool = False
    """The client already had the end: 204, so that it stops for good."""


def parse_position(text: str) -> int | None:
    """The number in *text*, or None: 1 to 18 ASCII digits, blanks around them.

    ``int()`` alone would also take ``"1_0"``, ``"+1"`` and Arabic digits; 18
    digits fit every database's bigint, also one further.
    """
    digits = text.strip(_BLANKS)
    return int(digits) if _POSITION.fullmatch(digits) else None


def resume_point(
    start: int | None, last_event_id: str | None, query: str | None
) -> ResumePoint:
    """The first that applies: *start*, the header + 1, the query, else 0.

    A header that is no position falls through (browsers send what any earlier
    server gave them); a query that is none raises :class:`InvalidPosition`,
    since somebody wrote it and would silently get the wrong chunks.
    """
    if start is not None:
        return ResumePoint(max(0, start))
    if last_event_id is not None:
        seen = parse_position(last_event_id)
        if seen is not None:
            return ResumePoint(seen + 1, after_event=True)
    if query is not None:
        position = parse_position(query)
        if position is None:
            raise InvalidPosition(
                "The parameter from must be the seq of a chunk: 1 to 18 digits"
            )
        return ResumePoint(position)
    return ResumePoint(0)


def plan(point: ResumePoint, cursor: int, settled: bool) -> Plan:
    """What *point* means for a stream that holds *cursor* chunks.

    The end event carries the cursor as its id, so a client that names it has
    seen everything. A position beyond what is stored belongs to another stream
    that had this id, or to none: replay from 0 instead of waiting at a hole.
    """
    if point.position <= cursor:
        return Plan(point.position)
    if settled and point.after_event and point.position == cursor + 1:
        return Plan(cursor, end_seen=True)
    return Plan(0, reset=True)
