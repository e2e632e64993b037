"""Turns as rows: the queue of a conversation, decided in the database alone.

A turn is submitted once by its request id, claimed by one conditional update,
and only one of a conversation runs at a time because ``running_of`` is unique:
a violation means that somebody else runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError
from django.db.models import F, QuerySet

from .. import codec, ids
from ..models import Conversation, Turn
from . import clock, conversations, door, transcript
from .conversations import NO_LIMIT
from .records import (
    ConversationRef,
    EventKind,
    TurnRecord,
    TurnStatus,
    UIMessage,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a client wants answered."""

    request_id: str
    messages: Sequence[UIMessage]
    origin_ids: Sequence[str]
    trigger: str = "submit-message"
    body: dict[str, Any] | None = None
    client_tools: list[Any] | None = None
    user_key: str = ""
    connection: str = ""
    """Names the asking connection to itself in the event log."""


@dataclass(frozen=True, slots=True)
class Submitted:
    turn: TurnRecord
    created: bool
    """False when this request id was known: nothing was done again."""


class Lost(Exception):
    """The turn is no longer this runner's: it ended, or its epoch moved."""


def turns() -> QuerySet[Turn]:
    return Turn.objects.using(door.alias())


def submit(ref: ConversationRef, submission: Submission) -> Submitted:
    """Store the messages and queue a turn, once for each request id.

    Raises :class:`StreamSerializationError` for messages that cannot be kept.
    """
    given = transcript.prepare(submission.messages)
    while True:
        pk = conversations.ensure(ref)
        with door.atomic():
            held = conversations.lock(pk, ref.wake_key)
            if held is not None:
                return _submit(held, submission, given)
        # Deleted between the two statements: the next round makes it anew.


def _submit(
    held: conversations.Locked, submission: Submission, given: list[transcript.Given]
) -> Submitted:
    known = by_request(held.pk, submission.request_id)
    if known is not None:
        return Submitted(known, created=False)
    running = turns().filter(running_of_id=held.pk).first()
    transcript.merge(
        held.pk,
        given,
        prune=True,
        keep=running.message_id if running is not None else "",
    )
    alias = door.alias()
    body = _encode(submission.body)
    tools = _encode(submission.client_tools)
    Conversation.objects.using(alias).filter(pk=held.pk).update(
        turn_cursor=held.turn_cursor + 1, last_body=body, last_client_tools=tools
    )
    row = Turn(
        conversation_id=held.pk,
        request_id=submission.request_id,
        request_key=ids.hash_key(submission.request_id),
        position=held.turn_cursor,
        trigger=submission.trigger,
        body=body,
        client_tools=tools,
        generation=held.generation,
        origin_ids=codec.encode(list(submission.origin_ids), limit=NO_LIMIT),
        user_key=submission.user_key,
        created_at=clock.now(alias),
    )
    row.save(using=alias, force_insert=True)
    conversations.emit(
        held.pk,
        held.wake_key,
        EventKind.SUBMITTED,
        turn=submission.request_id,
        connection=submission.connection,
    )
    return Submitted(record(row), created=True)


def claim(conversation_pk: int, *, message_id: str, lease: float) -> TurnRecord | None:
    """Make the oldest queued turn this process's to run; None if there is none
    or another turn of the conversation runs.

    *message_id* is the id of its reply, *lease* the seconds after which it
    counts as abandoned unless renewed.
    """
    alias = door.alias()
    queued = turns().filter(
        conversation_id=conversation_pk, status=TurnStatus.QUEUED.value
    )
    pk = queued.order_by("position").values_list("pk", flat=True).first()
    if pk is not None:
        try:
            with door.atomic():
                queued.filter(pk=pk).update(
                    status=TurnStatus.RUNNING.value,
                    running_of=conversation_pk,
                    epoch=F("epoch") + 1,
                    attempt=F("attempt") + 1,
                    message_id=message_id,
                    lease_seconds=lease,
                    lease_expires_at=clock.after(alias, lease),
                    started_at=clock.now(alias),
                )
        except IntegrityError:
            return None
    # The id of the reply is new at each claim, so it tells mine from others',
    # also when the answer to the update was lost and this is the second call.
    mine = turns().filter(running_of_id=conversation_pk, message_id=message_id)
    row = mine.first()
    return None if row is None else record(row)


def begin(turn: TurnRecord, wake_key: str, *, stream: str) -> None:
    """The reply begins: its stream exists and observers may follow it.

    Raises :class:`Lost` when the turn is no longer this runner's.
    """
    with door.atomic():
        conversations.lock(turn.conversation_pk, wake_key)
        mine = turns().filter(
            pk=turn.pk, epoch=turn.epoch, status=TurnStatus.RUNNING.value
        )
        if not mine.update(stream=stream):
            raise Lost
        conversations.emit(
            turn.conversation_pk,
            wake_key,
            EventKind.STARTED,
            turn=turn.request_id,
            stream=stream,
            continuation=turn.continuation,
            origin=list(turn.origin_ids),
        )


def sync_messages(
    ref: ConversationRef, messages: Sequence[UIMessage], connection: str
) -> None:
    """Store a client's list: nothing is deleted, the others are told."""
    given = transcript.prepare(messages)
    while True:
        pk = conversations.ensure(ref)
        with door.atomic():
            held = conversations.lock(pk, ref.wake_key)
            if held is not None:
                running = turns().filter(running_of_id=pk).first()
                keep = running.message_id if running is not None else ""
                transcript.merge(pk, given, prune=False, keep=keep)
                conversations.emit(
                    pk, ref.wake_key, EventKind.MESSAGES, connection=connection
                )
                return


def by_request(conversation_pk: int, request_id: str) -> TurnRecord | None:
    row = (
        turns()
        .filter(conversation_id=conversation_pk, request_key=ids.hash_key(request_id))
        .first()
    )
    return None if row is None else record(row)


def record(row: Turn) -> TurnRecord:
    """The row as a value."""
    return TurnRecord(
        pk=row.pk,
        conversation_pk=row.conversation_id,
        request_id=row.request_id,
        status=TurnStatus(row.status),
        position=row.position,
        attempt=row.attempt,
        trigger=row.trigger,
        continuation=row.continuation,
        body=None if row.body is None else codec.decode(row.body),
        client_tools=(
            None if row.client_tools is None else codec.decode(row.client_tools)
        ),
        generation=row.generation,
        stream=row.stream,
        message_id=row.message_id,
        origin_ids=tuple(codec.decode(row.origin_ids)),
        user_key=row.user_key,
        epoch=row.epoch,
        error=row.error,
        cancel_requested=row.cancel_requested is not None,
    )


def _encode(value: Any) -> str | None:
    return None if value is None else codec.encode(value, limit=NO_LIMIT, what="body")
