"""How turns end: finished by their runner, stopped, or cleared away."""

from __future__ import annotations

import logging

from django.db.models import F

from .. import conf
from ..models import Conversation
from . import (
    answering,
    awaited,
    clock,
    continuing,
    conversations,
    door,
    removal,
    transcript,
)
from .queue import Lost, by_request, end_queued, record, tell_ended, turns
from .records import ConversationRef, Ending, EventKind, TurnRecord, TurnStatus

logger = logging.getLogger("django_streams.turns")


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
    alias = door.alias()
    # Its completion hook is to be called: see responses.
    heard = ending.is_heard(turn)
    respond = clock.after(alias, conf.get().TURN_LEASE) if heard else None
    if not ended.update(
        status=ending.status.value,
        running_of=None,
        error=ending.error,
        message_id=ending.message["id"] if ending.message else turn.message_id,
        message_gone=False,
        lease_expires_at=None,
        respond_by=respond,
        finished_at=clock.now(alias),
    ):
        raise Lost
    if ending.message is not None and held.generation == turn.generation:
        _warn_of_known_id(turn, ending.message["id"])
        message = answering.settle(held, ending.message, ending.answered)
        transcript.upsert(turn.conversation_pk, message)
        removal.trim(turn.conversation_pk, ending.keep_messages)
    tell_ended(turn, wake_key, ending)
    continuing.go_on(held, turn, ending)


def _warn_of_known_id(turn: TurnRecord, message_id: str) -> None:
    """Say that a handler gave its message the id of another turn's."""
    if turn.continuation or message_id == turn.message_id:
        return
    others = turns().filter(conversation_id=turn.conversation_pk, message_id=message_id)
    known = others.exclude(pk=turn.pk).filter(message_gone=False).exists()
    if known and transcript.find(turn.conversation_pk, message_id) is not None:
        logger.warning(
            "agent %r gave a reply the id %r of an earlier one, which it replaces",
            conversations.ref_of(turn.conversation_pk).agent,
            message_id,
        )


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
    stays as it ended. A continuation that waits for further answers, and is no
    turn yet, is dropped.
    """
    with door.atomic():
        held = _hold(ref)
        turn = by_request(held.pk, request_id) if held else None
        if held is not None and turn is None:
            continuing.stop(held, request_id)
        if held is None or turn is None or turn.status.over:
            return turn
        if turn.status is TurnStatus.QUEUED:
            end_queued(held.wake_key, turn, TurnStatus.ABORTED)
        # Not "else": it may have been claimed since it was read.
        ask_to_stop(held, turn)
        return turn


def stop(ref: ConversationRef) -> TurnRecord | None:
    """Ask the running turn to stop and end all that wait, for their time or for
    answers.

    The running turn, or else the newest: as it ended, if it has. None if there
    was never one.
    """
    with door.atomic():
        held = _hold(ref)
        if held is None:
            return None
        continuing.stop(held)
        mine = turns().filter(conversation_id=held.pk)
        for row in mine.filter(status=TurnStatus.QUEUED.value).order_by("position"):
            end_queued(held.wake_key, record(row), TurnStatus.ABORTED)
        running = mine.filter(running_of_id=held.pk).first()
        if running is not None:
            ask_to_stop(held, record(running))
        newest = running or mine.order_by("-position").first()
        return None if newest is None else record(newest)


def clear(ref: ConversationRef, connection: str = "") -> TurnRecord | None:
    """Delete the messages; skip what is queued, stop what runs.

    Returns the running turn. Its reply will not be kept: the generation moved.
    """
    with door.atomic():
        held = _hold(ref)
        if held is None:
            return None
        Conversation.objects.using(door.alias()).filter(pk=held.pk).update(
            generation=F("generation") + 1,
            last_body=None,
            last_client_tools=None,
        )
        awaited.forget(held)
        transcript.delete_all(held.pk)
        conversations.emit(
            held.pk, held.wake_key, EventKind.CLEARED, connection=connection
        )
        mine = turns().filter(conversation_id=held.pk)
        for row in mine.filter(status=TurnStatus.QUEUED.value).order_by("position"):
            end_queued(held.wake_key, record(row), TurnStatus.SKIPPED)
        running = mine.filter(running_of_id=held.pk).first()
        if running is None:
            return None
        turn = record(running)
        ask_to_stop(held, turn)
        return turn


def _hold(ref: ConversationRef) -> conversations.Locked | None:
    pk = conversations.find(ref)
    return None if pk is None else conversations.lock(pk, ref.wake_key)


def ask_to_stop(held: conversations.Locked, turn: TurnRecord) -> None:
    """Ask a running turn to stop, once, in the caller's transaction."""
    asked = turns().filter(
        pk=turn.pk, status=TurnStatus.RUNNING.value, cancel_requested=None
    )
    if asked.update(cancel_requested=clock.now(door.alias())):
        conversations.emit(
            held.pk, held.wake_key, EventKind.CANCEL, turn=turn.request_id
        )
