"""How turns end: finished by their runner, stopped, or cleared away."""

from __future__ import annotations

from django.db.models import F

from ..models import Conversation
from . import clock, conversations, door, transcript
from .queue import Lost, by_request, record, turns
from .records import ConversationRef, Ending, EventKind, TurnRecord, TurnStatus


def finish(turn: TurnRecord, wake_key: str, ending: Ending) -> None:
    """End a running turn, in the caller's transaction, with its message.

    Raises :class:`Lost`, so that the whole transaction is undone, when the turn
    is no longer this runner's. A message of a conversation that was cleared
    meanwhile is not kept.
    """
    held = conversations.lock(turn.conversation_pk, wake_key)
    if held is None:
        raise Lost
    ended = turns().filter(
        pk=turn.pk, epoch=turn.epoch, status=TurnStatus.RUNNING.value
    )
    if not ended.update(
        status=ending.status.value,
        running_of=None,
        error=ending.error,
        message_id=ending.message["id"] if ending.message else turn.message_id,
        lease_expires_at=None,
        finished_at=clock.now(door.alias()),
    ):
        raise Lost
    if ending.message is not None and held.generation == turn.generation:
        transcript.upsert(turn.conversation_pk, ending.message)
    _tell_ended(turn, wake_key, ending)


def finish_alone(turn: TurnRecord, wake_key: str, ending: Ending) -> bool:
    """As :func:`finish`, in a transaction of its own: a turn without a stream.

    False if the turn is no longer this runner's.
    """
    try:
        with door.atomic():
            finish(turn, wake_key, ending)
    except Lost:
        return False
    return True


def outdated(turn: TurnRecord) -> bool:
    """Whether the conversation was cleared since the turn was submitted."""
    rows = Conversation.objects.using(door.alias()).filter(pk=turn.conversation_pk)
    return rows.exclude(generation=turn.generation).exists()


def cancel(ref: ConversationRef, request_id: str) -> TurnRecord | None:
    """Ask a turn to stop; the turn as it was, None if it is unknown.

    A queued one ends here. A running one is asked once, and a finished one
    stays as it ended.
    """
    with door.atomic():
        held = _hold(ref)
        turn = by_request(held.pk, request_id) if held else None
        if held is None or turn is None or turn.status.over:
            return turn
        if turn.status is TurnStatus.QUEUED:
            _end_queued(held, turn, TurnStatus.ABORTED)
        else:
            _ask_to_stop(held, turn)
        return turn


def clear(ref: ConversationRef, connection: str = "") -> TurnRecord | None:
    """Delete the messages; skip what is queued, stop what runs.

    Returns the running turn. Its reply will not be kept: the generation moved.
    """
    with door.atomic():
        held = _hold(ref)
        if held is None:
            return None
        Conversation.objects.using(door.alias()).filter(pk=held.pk).update(
            generation=F("generation") + 1, last_body=None, last_client_tools=None
        )
        transcript.delete_all(held.pk)
        conversations.emit(
            held.pk, held.wake_key, EventKind.CLEARED, connection=connection
        )
        mine = turns().filter(conversation_id=held.pk)
        for row in mine.filter(status=TurnStatus.QUEUED.value).order_by("position"):
            _end_queued(held, record(row), TurnStatus.SKIPPED)
        running = mine.filter(running_of_id=held.pk).first()
        if running is None:
            return None
        turn = record(running)
        _ask_to_stop(held, turn)
        return turn


def _hold(ref: ConversationRef) -> conversations.Locked | None:
    pk = conversations.find(ref)
    return None if pk is None else conversations.lock(pk, ref.wake_key)


def _end_queued(
    held: conversations.Locked, turn: TurnRecord, status: TurnStatus
) -> None:
    ended = turns().filter(pk=turn.pk, status=TurnStatus.QUEUED.value)
    if ended.update(status=status.value, finished_at=clock.now(door.alias())):
        _tell_ended(turn, held.wake_key, Ending(status=status))


def _ask_to_stop(held: conversations.Locked, turn: TurnRecord) -> None:
    asked = turns().filter(
        pk=turn.pk, status=TurnStatus.RUNNING.value, cancel_requested=None
    )
    if asked.update(cancel_requested=clock.now(door.alias())):
        conversations.emit(
            held.pk, held.wake_key, EventKind.CANCEL, turn=turn.request_id
        )


def _tell_ended(turn: TurnRecord, wake_key: str, ending: Ending) -> None:
    conversations.emit(
        turn.conversation_pk,
        wake_key,
        EventKind.ENDED,
        turn=turn.request_id,
        status=ending.status.value,
        stream=turn.stream,
        continuation=turn.continuation,
        origin=list(turn.origin_ids),
        error=ending.error,
        inBand=ending.in_band,
        spoke=ending.spoke,
    )
