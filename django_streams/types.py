"""The values that cross the public API: frozen, without Django."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

Json: TypeAlias = Any
"""None, bool, int, float, str, list of Json, or dict of str to Json.

A recursive alias makes every caller that holds a ``dict[str, str]`` cast
(dict is invariant); the codec checks the real thing at run time.
"""

Lease: TypeAlias = Literal["live", "lapsed"]
OnLapse: TypeAlias = Literal["settle", "wait"]


class StreamState(StrEnum):
    """``streaming`` until the stream settles, then one of the other two."""

    STREAMING = "streaming"
    COMPLETED = "completed"
    ERRORED = "errored"

    @property
    def settled(self) -> bool:
        return self is not StreamState.STREAMING


class StreamChunk(NamedTuple):
    """One chunk at its position; ``chunk`` is JSON text with ``raw=True``.

    A tuple, because a replay makes one for every chunk: half a microsecond
    less each than a frozen dataclass.
    """

    seq: int
    chunk: Json


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """A stream as it was when asked."""

    stream_id: str
    state: StreamState
    cursor: int
    """Number of stored chunks, which is the next seq."""
    tag: str | None
    metadata: dict[str, Json] | None
    error: str | None
    """The reason given to ``error()``; ``""`` and ``None`` differ."""
    lease: Lease | None
    created_at: datetime
    updated_at: datetime
    """Time of the last append, or of the opening."""
    closed_at: datetime | None
