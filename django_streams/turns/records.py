"""What the turns room hands out: frozen values, never rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from .. import ids

UIMessage: TypeAlias = dict[str, Any]


class TurnStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    ABORTED = "aborted"
    ERRORED = "errored"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        return self not in (TurnStatus.QUEUED, TurnStatus.RUNNING)


class EventKind(StrEnum):
    """What a ConversationEvent tells; its body says about which turn."""

    SUBMITTED = "submitted"
    """User messages were stored and a turn was queued."""
    STARTED = "started"
    """A turn's stream exists."""
    ENDED = "ended"
    CANCEL = "cancel"
    """Somebody asked the running turn to stop."""
    CLEARED = "cleared"
    MESSAGES = "messages"
    """The transcript changed without a turn."""


@dataclass(frozen=True, slots=True)
class ConversationRef:
    """Which conversation; says nothing about whether it has a row yet."""

    agent: str
    name: str
    owner: str
    key: str = field(init=False)
    wake_key: str = field(init=False)

    def __post_init__(self) -> None:
        key = ids.hash_key(self.agent, self.owner, self.name)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "wake_key", ids.hash_key("conversation", key))


@dataclass(frozen=True, slots=True)
class Event:
    seq: int
    kind: EventKind
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn's row as it was when read."""

    pk: int
    conversation_pk: int
    request_id: str
    status: TurnStatus
    position: int
    attempt: int
    trigger: str
    continuation: bool
    body: dict[str, Any] | None
    client_tools: list[Any] | None
    generation: int
    stream: str
    """"" until the reply has begun."""
    message_id: str
    origin_ids: Sequence[str]
    user_key: str
    epoch: int
    error: str | None
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A conversation as a connection meets it.

    ``events`` is the position from which on to follow: everything that
    happened before it is in the rest, and perhaps some of what came after.
    """

    events: int = 0
    running: TurnRecord | None = None
    queued: TurnRecord | None = None
    """The newest accepted turn that nobody runs yet."""
    failed: TurnRecord | None = None
    """The newest turn, if it failed: what a late visitor is told."""
    lapsed: bool = False
    """The running turn's lease is over: its runner is gone."""

    @property
    def active(self) -> TurnRecord | None:
        """The running turn, once its reply has begun."""
        running = self.running
        return running if running is not None and running.stream else None

    @property
    def pending(self) -> str | None:
        """Request id of the newest accepted turn whose reply has not begun."""
        if self.queued is not None:
            return self.queued.request_id
        if self.running is not None and not self.running.stream:
            return self.running.request_id
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a turn ends."""

    status: TurnStatus
    message: UIMessage | None = None
    """What is kept; None keeps nothing."""
    error: str | None = None
    """Text for clients."""
    in_band: bool = False
    """The error came as a chunk of the reply."""
    spoke: bool = True
    """False when the handler returned None."""
