"""The resume handshake of one connection, as a state machine without I/O.

A connection and the reply that is being written are in one of these states:

``UNOFFERED``  it sees replies that begin from now on, from their first chunk
``PARKED``     it was told to wait for a reply that has not begun
``OFFERED``    it was offered the reply and has not accepted: it gets no chunk
``FOLLOWING``  it gets the reply, live or as a replay that becomes live

Methods take what happened and return what to do, in order. Everything about
turns comes from the database (:class:`Snapshot`, :class:`TurnRecord`) or from
the event log; nothing is decided from memory but this connection's own state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Self, TypeAlias

from ..turns.records import Snapshot, TurnRecord, TurnStatus
from . import protocol
from .protocol import Response


class State(Enum):
    UNOFFERED = auto()
    PARKED = auto()
    OFFERED = auto()
    FOLLOWING = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """The reply of one turn on the wire."""

    request_id: str
    stream: str
    continuation: bool = False
    origin_ids: tuple[str, ...] = ()

    @classmethod
    def of(cls, turn: TurnRecord) -> Self:
        return cls(
            turn.request_id, turn.stream, turn.continuation, tuple(turn.origin_ids)
        )

    @classmethod
    def from_event(cls, body: dict[str, Any]) -> Self:
        return cls(
            body["turn"],
            body["stream"],
            body.get("continuation", False),
            tuple(body.get("origin", ())),
        )

    @property
    def response(self) -> Response:
        """The writer of its frames."""
        return Response(
            self.request_id,
            continuation=self.continuation,
            message_ids=() if self.continuation else self.origin_ids,
        )


@dataclass(frozen=True, slots=True)
class Send:
    """One frame."""

    frame: str


@dataclass(frozen=True, slots=True)
class SendTranscript:
    """The transcript as it is now."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Show a live reply from its first chunk; with *replay* what is stored goes
    out as a replay, which ends before anything is live."""

    reply: Reply
    replay: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """Show a settled reply and then *last*."""

    reply: Reply
    last: str


@dataclass(frozen=True, slots=True)
class Unfollow:
    """Show no further chunk, from the next action on."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Go on once everything that is followed has been shown to its end."""


Action: TypeAlias = Send | SendTranscript | Follow | Replay | Unfollow | Drain


class Handshake:
    """One connection's part in the handshake.

    With *resume* off nothing is offered: a connection that comes in the middle
    of a reply gets its end.
    """

    def __init__(self, *, resume: bool = True) -> None:
        self._resume = resume
        self.state = State.UNOFFERED
        self._request_id = ""
        """The reply that OFFERED and FOLLOWING are about."""
        self._own: dict[str, None] = {}
        """Turns that this connection asked for and that are not over."""

    def connected(self, seen: Snapshot) -> list[Action]:
        """The socket is new, or has missed events."""
        if seen.active is not None:
            request_id = seen.active.request_id
            self._be(State.OFFERED, request_id)
            return [Send(protocol.resuming(request_id))] if self._resume else []
        if seen.pending is not None and self._resume:
            self._be(State.PARKED)
            return [Send(protocol.pending(seen.pending))]
        self._be(State.UNOFFERED)
        return []

    def probed(self, probe_id: str | None, seen: Snapshot) -> list[Action]:
        """A resume request: exactly one answer, at once."""
        if not self._resume:
            return [Send(protocol.resume_none(probe_id))]
        if seen.active is not None:
            # Offered anew however often it asks; no chunk before it accepts.
            request_id = seen.active.request_id
            leave = self._leave()
            self._be(State.OFFERED, request_id)
            return [*leave, Send(protocol.resuming(request_id, probe_id))]
        if seen.failed is not None:
            return [Send(protocol.resuming(seen.failed.request_id, probe_id))]
        if seen.pending is not None:
            self._be(State.PARKED)
            return [Send(protocol.pending(seen.pending, probe_id))]
        return [Send(protocol.resume_none(probe_id))]

    def acked(
        self, request_id: str, seen: Snapshot, turn: TurnRecord | None
    ) -> list[Action]:
        """The client accepts an offer; *turn* is the one it names, if any."""
        active = seen.active
        if active is not None:
            if active.request_id != request_id:
                # It stays excluded from the chunks of the reply it was offered.
                return []
            self._be(State.FOLLOWING, request_id)
            return [Follow(Reply.of(active), replay=True)]
        if turn is None:
            return [Send(Response(request_id).done(replay=True))]
        reply = Reply.of(turn)
        response = reply.response
        match turn.status:
            case TurnStatus.QUEUED | TurnStatus.RUNNING:
                return []
            case TurnStatus.SKIPPED:
                return [Send(response.done(replay=True, outcome="skipped"))]
            case TurnStatus.ERRORED:
                failed = seen.failed
                if failed is None or failed.request_id != request_id:
                    return [Send(response.done(replay=True, outcome="error"))]
                last = response.error(turn.error or "")
            case TurnStatus.ABORTED:
                last = response.done(replay=True, outcome="aborted")
            case TurnStatus.COMPLETED:
                last = response.done(replay=True)
        return [Replay(reply, last)] if reply.stream else [Send(last)]

    def submitted(self, request_id: str) -> None:
        """This connection's chat request was accepted."""
        self._own[request_id] = None

    def asked_again(self, turn: TurnRecord) -> list[Action]:
        """A request came again that was answered long ago: its end is told."""
        frames = _terminal(Reply.of(turn), turn.status, {"error": turn.error})
        return [SendTranscript(), *map(Send, frames)]

    def started(self, reply: Reply) -> list[Action]:
        """A reply began."""
        known = self._request_id == reply.request_id
        if known and self.state in (State.OFFERED, State.FOLLOWING):
            return []
        if self.state is State.PARKED:
            self._be(State.OFFERED, reply.request_id)
            return [Send(protocol.resuming(reply.request_id))]
        self._be(State.FOLLOWING, reply.request_id)
        return [Follow(reply, replay=False)]

    def ended(self, body: dict[str, Any], *, waiting: bool) -> list[Action]:
        """A turn is over. *waiting*: another one is queued or about to begin.

        The order is last chunk, transcript, terminal frame: a message sent right
        after the terminal frame would be lost to a later transcript. Who asked
        has every chunk and needs no transcript, unless it was offered the reply
        and has not accepted: then the transcript is all it gets.
        """
        reply = Reply.from_event(body)
        mine = self._own.pop(reply.request_id, 0) is None
        status = TurnStatus(body["status"])
        if status is TurnStatus.SKIPPED:
            # Whoever else waits goes on waiting: a successor exists.
            return [Send(f) for f in _terminal(reply, status, body)] if mine else []
        here = self._request_id == reply.request_id
        state = self.state
        follows = here and state is State.FOLLOWING
        if here and state in (State.OFFERED, State.FOLLOWING):
            self._be(State.UNOFFERED)
        actions: list[Action] = [Drain()] if follows else []
        if not mine or (here and state is State.OFFERED):
            actions.append(SendTranscript())
        actions += [Send(frame) for frame in _terminal(reply, status, body)]
        if state is State.PARKED and not reply.stream and not waiting:
            self._be(State.UNOFFERED)
            if status is TurnStatus.ERRORED:
                # Accepting this offer shows the error to who waits for a reply.
                actions.append(Send(protocol.resuming(reply.request_id)))
            else:
                actions.append(Send(protocol.resume_none(reason=None)))
        return actions

    def cleared(self, *, mine: bool) -> list[Action]:
        """The conversation was cleared, by this connection if *mine*."""
        actions: list[Action] = [] if mine else [Send(protocol.chat_clear())]
        if self.state is State.PARKED:
            self._be(State.UNOFFERED)
            actions.append(Send(protocol.resume_none(reason=None)))
        return actions

    def _leave(self) -> Sequence[Action]:
        return [Unfollow()] if self.state is State.FOLLOWING else []

    def _be(self, state: State, request_id: str = "") -> None:
        self.state = state
        self._request_id = request_id


def _terminal(reply: Reply, status: TurnStatus, body: dict[str, Any]) -> list[str]:
    """The frames that end a turn for everybody."""
    response = reply.response
    if status is TurnStatus.SKIPPED:
        return [response.done(outcome="skipped")]
    if status is TurnStatus.ABORTED:
        return [response.done(outcome="aborted")]
    if status is TurnStatus.COMPLETED:
        if body.get("spoke", True):
            return [response.done()]
        return [response.done(protocol.NO_RESPONSE, outcome="completed")]
    text = body.get("error") or ""
    if body.get("inBand"):
        return [response.error(text, done=False), response.done(outcome="error")]
    return [response.error(text)]
