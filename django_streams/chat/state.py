"""How a turn stands, as code is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..turns.records import TurnRecord, TurnStatus


@dataclass(frozen=True, slots=True)
class TurnState:
    """A turn as it was when asked about."""

    request_id: str
    status: str
    """``"queued"``, ``"running"``, or how it ended: ``"completed"``,
    ``"aborted"``, ``"error"`` or ``"skipped"``."""
    error: str | None = None
    """What its readers were told."""

    @property
    def over(self) -> bool:
        """Whether it has ended; it then stays as it is."""
        return self.status not in ("queued", "running")

    @classmethod
    def of(cls, turn: TurnRecord) -> Self:
        """The state of a turn's row."""
        failed = turn.status is TurnStatus.ERRORED
        status = "error" if failed else turn.status.value
        return cls(turn.request_id, status, turn.error)
