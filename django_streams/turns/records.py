"""What the turns room hands out: frozen values, never rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    UPDATED = "updated"
    """A tool call of a stored message got its answer."""
    STATE = "state"
    """The state that clients share was replaced."""


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
    seq_base: int = 0
    """Where clients begin to count its chunks."""
    handovers: int = 0
    """Attempts that a runner gave back; they are no failures."""


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
    wanted: str | None = None
    """Request id of the continuation that waits for further answers."""
    owner: str = ""
    """The connection that asked for it; empty once it is gone."""
    lapsed: bool = False
    """The running turn's lease is over: its runner is gone."""

    @property
    def active(self) -> TurnRecord | None:
        """The running turn, once its reply has begun."""
        running = self.running
        return running if running is not None and running.stream else None

    def expects(self, request_id: str) -> bool:
        """Whether a continuation of that id is still to come, or is on."""
        on = [turn.request_id for turn in (self.running, self.queued) if turn]
        return request_id in (self.wanted, *on)

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
    answered: Collection[str] = ()
    """The calls of it whose waiting answers it has."""
    error: str | None = None
    """Text for clients."""
    in_band: bool = False
    """The error came as a chunk of the reply."""
    spoke: bool = True
    """False when the handler returned None."""
    says_all: bool = False
    """The model said that it has nothing to add: its finish reason is "stop"."""
    keep_messages: int | None = None
    """The oldest messages beyond so many are deleted."""

    def is_heard(self, turn: TurnRecord) -> bool:
        """Whether the completion hook hears of this end: of every reply that began,
        and of a continuation that failed before it did."""
        failed = self.status is TurnStatus.ERRORED
        return bool(turn.stream) or (failed and turn.continuation)
