"""A turn's lease: the sign that somebody is running it, and how it changes hands.

Whoever takes a turn moves its epoch and that of its stream in one transaction.
From then on the runner that let the lease lapse can neither end the turn nor
append a chunk, whether it is gone or only slow.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import F, QuerySet

from .. import ids
from ..models import Turn
from . import clock, conversations, door, logs, queue, rows
from .logs import Log
from .records import ConversationRef, EventKind, TurnRecord, TurnStatus


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn that this process runs from now on."""

    turn: TurnRecord
    log: Log | None
    """None: its reply had not begun, or its log takes no more chunks."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a turn stands with its runner."""

    stop: bool
    """Whether it was asked to stop."""
    left: float
    """Seconds until its lease is over, by the database's clock; less than zero
    when it is."""


def standing(turn: TurnRecord) -> Standing:
    """One query, and nothing is written: who is told something asks often.

    Raises :class:`~.queue.Lost` when the turn is no longer this runner's.
    """
    found = rows.read('t."id" = %s AND t."epoch" = %s AND t."status" = %s', _mine(turn))
    if not found:
        raise queue.Lost
    [(row, now)] = found
    assert row.lease_expires_at is not None
    left = (row.lease_expires_at - now).total_seconds()
    return Standing(row.cancel_requested is not None, left)


def renew(turn: TurnRecord, lease: float) -> bool:
    """Extend the lease to *lease* seconds from now; whether to stop the turn.

    Raises :class:`~.queue.Lost` when the turn is no longer this runner's.
    """
    # Said by every running turn again and again, so not built by the ORM. One
    # statement as long as nobody has asked it to stop, which nobody takes back.
    store = rows.store()
    extend = (
        f"UPDATE {rows.TABLE} SET "
        f'"lease_expires_at" = {store.after(store.clock, "%s")} '
        'WHERE "id" = %s AND "epoch" = %s AND "status" = %s'
    )
    mine = [lease, *_mine(turn)]
    if store.execute(f'{extend} AND "cancel_requested" IS NULL', mine):
        return False
    if not store.execute(extend, mine):
        raise queue.Lost
    return True


def release(turn: TurnRecord, *, free: bool) -> bool:
    """Give the turn up: its lease is over at once, and anybody may take it.

    *free*: this attempt does not count, for a deploy is no crash. False when it
    is no longer this runner's.
    """
    mine = _running(turn)
    # The epoch moves too: a renewal that is under way must not undo this.
    return bool(
        mine.update(
            epoch=turn.epoch + 1,
            handovers=F("handovers") + (1 if free else 0),
            lease_expires_at=F("started_at"),
        )
    )


def take_over(
    ref: ConversationRef, turn: TurnRecord, lease: float, runner: str
) -> Taken | None:
    """The turn as ours in order to end it, if its lease is over and nobody else
    was first. *runner* is a token of this call's own."""
    return _take(ref, turn, lease, runner)


def recover(
    ref: ConversationRef,
    turn: TurnRecord,
    lease: float,
    runner: str,
    *,
    attempts: int,
    restart: bool,
) -> Taken | None:
    """The turn as ours in order to run it again, under the same conditions.

    Not if it was asked to stop or has been lost more than *attempts* times. With
    *restart* its log ends here and an empty one with the same tag begins.
    """
    return _take(ref, turn, lease, runner, attempts=attempts, restart=restart)


def _take(
    ref: ConversationRef,
    turn: TurnRecord,
    lease: float,
    runner: str,
    *,
    attempts: int | None = None,
    restart: bool = False,
) -> Taken | None:
    # Ours already, if the answer to an earlier call was lost.
    ours = _rows(turn).filter(runner=runner, status=TurnStatus.RUNNING.value).first()
    try:
        with door.atomic():
            if ours is not None:
                return _resume(queue.record(ours), lease)
            # In this order, as for a turn's end: stream, conversation, turn.
            log = logs.take(turn.stream, lease) if turn.stream else None
            if conversations.lock(turn.conversation_pk, ref.wake_key) is None:
                raise queue.Lost
            taken = _claim(turn, lease, runner, attempts)
            if restart and turn.stream:
                return _restart(ref, taken, log, lease)
            if attempts is not None and turn.stream:
                _tell(ref, taken)
            return Taken(taken, log)
    except queue.Lost:
        return None


def _resume(turn: TurnRecord, lease: float) -> Taken:
    log = None
    if turn.stream:
        log = logs.take(turn.stream, lease, takeover=False)
    # Behind the stream's lock: who takes the turn from us takes both or none,
    # so the epoch that the log was opened with is ours.
    renew(turn, lease)
    return Taken(turn, log)


def _claim(
    turn: TurnRecord, lease: float, runner: str, attempts: int | None
) -> TurnRecord:
    alias = door.alias()
    lapsed = queue.turns().filter(
        pk=turn.pk,
        epoch=turn.epoch,
        status=TurnStatus.RUNNING.value,
        lease_expires_at__lt=clock.now(alias),
    )
    if attempts is not None:
        lapsed = lapsed.filter(
            cancel_requested=None, attempt__lte=F("handovers") + attempts
        )
    if not lapsed.update(
        epoch=turn.epoch + 1,
        attempt=turn.attempt if attempts is None else F("attempt") + 1,
        runner=runner,
        lease_seconds=lease,
        lease_expires_at=clock.after(alias, lease),
    ):
        # Undoes the fence on the stream as well: it is another's to write.
        raise queue.Lost
    return queue.record(queue.turns().get(pk=turn.pk))


def _restart(
    ref: ConversationRef, turn: TurnRecord, log: Log | None, lease: float
) -> Taken:
    # Under the id that clients know it by, and with its first chunk: that is
    # what makes the official hook drop what it shows of the old one.
    known = None if log is None else logs.message_id(log)
    if log is not None:
        logs.drop(log)
    fresh = replace(
        turn,
        stream=ids.new_id("turn_"),
        message_id=known or turn.message_id,
        # The hook drops replayed chunks of a continuation up to the last one that
        # it was shown; of another reply it begins anew.
        seq_base=turn.seq_base + logs.length(turn.stream) if turn.continuation else 0,
    )
    begun = logs.start(logs.create(ref, fresh, fresh.stream, lease), fresh)
    _rows(fresh).update(
        stream=fresh.stream, message_id=fresh.message_id, seq_base=fresh.seq_base
    )
    _tell(ref, fresh)
    return Taken(fresh, begun)


def _tell(ref: ConversationRef, turn: TurnRecord) -> None:
    """A reply began anew, or goes on in its stream after its process was gone."""
    conversations.emit(
        turn.conversation_pk,
        ref.wake_key,
        EventKind.STARTED,
        turn=turn.request_id,
        stream=turn.stream,
        continuation=turn.continuation,
        origin=list(turn.origin_ids),
        base=turn.seq_base,
    )


def _mine(turn: TurnRecord) -> list[Any]:
    """Id, epoch and status of the turn as long as it is this runner's."""
    return [turn.pk, turn.epoch, TurnStatus.RUNNING.value]


def _running(turn: TurnRecord) -> QuerySet[Turn]:
    """The turn as long as it is this runner's."""
    return _rows(turn).filter(epoch=turn.epoch, status=TurnStatus.RUNNING.value)


def _rows(turn: TurnRecord) -> QuerySet[Turn]:
    return queue.turns().filter(pk=turn.pk)


def begin(ref: ConversationRef, turn: TurnRecord, stream_id: str, lease: float) -> Log:
    """Open the stream of a reply and tell observers of it, in one transaction.

    Raises :class:`~.queue.Lost` when the turn is no longer this runner's; then
    there is no stream either.
    """
    with door.atomic():
        log = logs.create(ref, turn, stream_id, lease)
        queue.begin(turn, ref.wake_key, stream=stream_id)
    return log
