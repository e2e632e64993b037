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

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Self, TypeAlias

from ..turns.records import Snapshot, TurnRecord, TurnStatus
from . import protocol
from .protocol import Response

CONTINUATION_OWNED = "continuation-owned"
"""Why a connection that sees a continuation live is not offered it."""


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
    base: int = 0
    """The number of its first chunk."""

    @classmethod
    def of(cls, turn: TurnRecord) -> Self:
        return cls(
            turn.request_id,
            turn.stream,
            turn.continuation,
            tuple(turn.origin_ids),
            turn.seq_base,
        )

    @classmethod
    def from_event(cls, body: dict[str, Any]) -> Self:
        return cls(
            body["turn"],
            body["stream"],
            body.get("continuation", False),
            tuple(body.get("origin", ())),
            body.get("base", 0),
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
    """The transcript as it is now, with what is being written if *partial*."""

    partial: bool = False


@dataclass(frozen=True, slots=True)
class Follow:
    """Show a live reply from its first chunk; with *replay* what is stored goes
    out as a replay, which ends before anything is live."""

    reply: Reply
    replay: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """Show a settled reply, and do *then* right after it."""

    reply: Reply
    then: tuple[Send | SendTranscript, ...]


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
    of a reply gets its end. *connection* is what the database knows it as.
    """

    def __init__(self, *, resume: bool = True, connection: str = "") -> None:
        self._resume = resume
        self._connection = connection
        self.state = State.UNOFFERED
        self._request_id = ""
        """The reply that OFFERED and FOLLOWING are about."""
        self._stream = ""
        """Its stream; another one when the reply was begun anew."""
        self._anew = False
        """Whether the offer is of a reply that was begun anew."""
        self._own: dict[str, bool] = {}
        """Turns that this connection asked for and that are not over; and whether
        another reply was shown to its end since."""
        self._awaits = ""
        """The continuation that this connection's answer to a tool call asked for."""
        self._cleared = ""
        """The reply that was being shown when the conversation was cleared."""

    def overtaken(self, seen: Snapshot) -> list[Action]:
        """What a client that comes may still show of an attempt that was dropped.

        Only of a continuation: for all else the offered replay begins the message
        anew. Goes before the transcript, which then takes its place.
        """
        active = seen.active
        if active is None or not active.seq_base:
            return []
        return [Send(Reply.of(active).response.done(outcome="recovering"))]

    def connected(self, seen: Snapshot) -> list[Action]:
        """The socket is new, or has missed events."""
        gone = self._awaits and not seen.expects(self._awaits)
        if gone:
            self._awaits = ""
        # The end of one may be among what was missed; the others are as if another
        # connection had asked for them.
        self._own = {}
        return [
            *([Send(protocol.resume_none(reason=None))] if gone else ()),
            *self._connected(seen),
        ]

    def _connected(self, seen: Snapshot) -> list[Action]:
        if seen.active is not None:
            request_id = seen.active.request_id
            self._be(State.OFFERED, request_id, seen.active.stream)
            return [Send(protocol.resuming(request_id))] if self._resume else []
        if seen.pending is not None and self._resume:
            self._be(State.PARKED)
            return [Send(protocol.pending(seen.pending))]
        self._be(State.UNOFFERED)
        return []

    def probed(self, probe_id: str | None, seen: Snapshot) -> list[Action]:
        """A resume request: exactly one answer, at once."""
        return [*self._caught_up(seen), *self._probed(probe_id, seen)]

    def _probed(self, probe_id: str | None, seen: Snapshot) -> list[Action]:
        if not self._resume:
            return [Send(protocol.resume_none(probe_id))]
        if (
            seen.active is not None
            and seen.active.continuation
            and seen.active.request_id != self._awaits
            and self.state is State.FOLLOWING
        ):
            # It sees all of it; who asked for it resumes it.
            return [Send(protocol.resume_none(probe_id, CONTINUATION_OWNED))]
        if seen.active is not None:
            # Offered anew however often it asks; no chunk before it accepts.
            request_id = seen.active.request_id
            leave = self._leave()
            self._be(State.OFFERED, request_id, seen.active.stream)
            return [*leave, Send(protocol.resuming(request_id, probe_id))]
        if seen.wanted is not None and seen.owner in ("", self._connection):
            # Who asked for it is gone, as after a reload: whoever asks resumes it.
            self.enrolled(seen.wanted)
        if self._awaits:
            return [Send(protocol.pending(self._awaits, probe_id))]
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
            if anew := self._caught_up(seen):
                # What it accepts is over; it was offered what there is now.
                return anew
            self._be(State.FOLLOWING, request_id, active.stream)
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
        if not reply.stream:
            return [Send(last)]
        if reply.continuation:
            # Its chunks would stay a message of their own beside the one that
            # they were added to.
            return [Replay(reply, (SendTranscript(), Send(last)))]
        return [Replay(reply, (Send(last),))]

    @property
    def awaits(self) -> str:
        """The continuation that an answer of this connection asked for."""
        return self._awaits

    def submitted(self, request_id: str) -> None:
        """This connection's chat request was accepted."""
        self._own[request_id] = False

    def enrolled(self, request_id: str) -> None:
        """This connection's answer asked for a continuation: when it begins it is
        offered, for the client waits for an offer and not for chunks."""
        self._awaits = request_id

    def asked_again(self, turn: TurnRecord) -> list[Action]:
        """A request is over as it comes: its end is told.

        It was refused because another turn runs, or came again and was answered
        long ago. Not if its end is still to be told here: the chunks come first.
        """
        if turn.request_id in self._own:
            return []
        frames = _terminal(Reply.of(turn), turn.status, {"error": turn.error})
        refused = turn.status is TurnStatus.SKIPPED
        return [SendTranscript(partial=refused), *map(Send, frames)]

    def started(self, reply: Reply) -> list[Action]:
        """A reply began, or began anew after its process died.

        Who was shown the old one is told that it is over and that the new one
        can be resumed. Only the replay of an accepted offer makes the official
        hook drop what it shows; nothing inside of a reply does.
        """
        known = self._request_id == reply.request_id
        if known and self.state in (State.OFFERED, State.FOLLOWING):
            if self._stream == reply.stream:
                return []
            leave = self._leave()
            self._be(State.OFFERED, reply.request_id, reply.stream)
            if leave or reply.continuation:
                # What a continuation had said stays shown unless this is said, also
                # to who has come back and not accepted yet.
                self._anew = True
                leave.append(Send(reply.response.done(outcome="recovering")))
                if reply.continuation:
                    # Its chunks replace nothing: the message is as it was before.
                    leave.append(SendTranscript())
                if self._resume:
                    leave.append(Send(protocol.resuming(reply.request_id)))
            return leave
        awaited = reply.request_id == self._awaits
        parked = self.state is State.PARKED and reply.request_id not in self._own
        if awaited or parked:
            self._be(State.OFFERED, reply.request_id, reply.stream)
            return [Send(protocol.resuming(reply.request_id))]
        self._be(State.FOLLOWING, reply.request_id, reply.stream)
        return [Follow(reply, replay=False)]

    def _caught_up(self, seen: Snapshot) -> list[Action]:
        """Hear that the reply was begun anew, if the event has yet to come."""
        active = seen.active
        known = active is not None and self._request_id == active.request_id
        return self.started(Reply.of(active)) if active and known else []

    def ended(self, body: dict[str, Any], *, waiting: bool) -> list[Action]:
        """A turn is over. *waiting*: another one is queued or about to begin.

        The order is last chunk, transcript, terminal frame: a message sent right
        after the terminal frame would be lost to a later transcript. Who asked
        has every chunk and needs no transcript, unless it was offered the reply
        and has not accepted: then the transcript is all it gets. Or unless it was
        shown another reply after it asked, which its own may have replaced.
        """
        reply = Reply.from_event(body)
        mixed = self._own.pop(reply.request_id, None)
        mine = mixed is not None
        awaited = reply.request_id == self._awaits
        if awaited:
            self._awaits = ""
        status = TurnStatus(body["status"])
        if status is TurnStatus.SKIPPED:
            # Whoever else waits goes on waiting: a successor exists.
            frames = _terminal(reply, status, body) if mine else []
            if awaited:
                frames.append(protocol.resume_none(reason=None))
            return [Send(frame) for frame in frames]
        here = self._request_id == reply.request_id
        state, anew = self.state, self._anew
        follows = here and state is State.FOLLOWING
        if here and state in (State.OFFERED, State.FOLLOWING):
            self._be(State.UNOFFERED)
        if follows and not mine:
            self._own = dict.fromkeys(self._own, True)
        actions: list[Action] = [Drain()] if follows else []
        # What was under way when it was cleared has shown some of it again.
        cleared, self._cleared = self._cleared == reply.request_id, ""
        asked = mine and not mixed and not reply.continuation
        if not asked or cleared or (here and state is State.OFFERED):
            actions.append(SendTranscript())
        lost = awaited and not reply.stream
        failed = status is TurnStatus.ERRORED
        if lost and not failed:
            actions.append(Send(protocol.resume_none(reason=None)))
        actions += [Send(frame) for frame in _terminal(reply, status, body)]
        if lost and failed:
            # Accepting this offer shows the error to who waits for a reply.
            actions.append(Send(protocol.resuming(reply.request_id)))
        if here and anew:
            # The hook has accepted and got nothing yet: on the terminal frame
            # it adds an empty message, which this takes away.
            actions.append(SendTranscript())
        if state is State.PARKED and not reply.stream and not waiting:
            self._be(State.UNOFFERED)
            if failed:
                actions.append(Send(protocol.resuming(reply.request_id)))
            else:
                actions.append(Send(protocol.resume_none(reason=None)))
        return actions

    def cleared(self, *, mine: bool) -> list[Action]:
        """The conversation was cleared, by this connection if *mine*."""
        actions: list[Action] = [*self._leave()]
        if not mine:
            actions.append(Send(protocol.chat_clear()))
        if self.state in (State.OFFERED, State.FOLLOWING):
            self._cleared = self._request_id
            self._be(State.UNOFFERED)
        if self.state is State.PARKED or self._awaits:
            if self.state is State.PARKED:
                self._be(State.UNOFFERED)
            self._awaits = ""
            actions.append(Send(protocol.resume_none(reason=None)))
        return actions

    def _leave(self) -> list[Action]:
        return [Unfollow()] if self.state is State.FOLLOWING else []

    def _be(self, state: State, request_id: str = "", stream: str = "") -> None:
        self.state = state
        self._request_id = request_id
        self._stream = stream
        self._anew = False


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
        if reply.continuation:
            return []
        return [response.done(protocol.NO_RESPONSE, outcome="completed")]
    text = body.get("error") or ""
    if body.get("inBand"):
        return [response.error(text, done=False), response.done(outcome="error")]
    return [response.error(text)]
