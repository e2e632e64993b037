"""Turns that code asks for: they wait in line, whatever the mode.

An order brings its messages when its time comes. Either they are in its row, or
the row is *held*: whoever placed it makes them of the transcript then, and keeps
the row's lease meanwhile. A held turn whose lease is over ends as skipped, so
nobody waits for a process that died.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import codec, ids
from ..models import Conversation, Turn
from . import calls, clock, conversations, door, queue, transcript
from .conversations import NO_LIMIT
from .policy import CONTINUE
from .records import ConversationRef, EventKind, TurnRecord, TurnStatus, UIMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A turn to be run in its place; *held* is the seconds of the first lease."""

    request_id: str
    trigger: str
    messages: Sequence[UIMessage] | None = None
    origin_ids: Sequence[str] = ()
    body: dict[str, Any] | None = None
    user_key: str = ""
    held: float | None = None


def place(ref: ConversationRef, order: Order) -> TurnRecord:
    """Queue the turn, once for each request id; the turn as it is now.

    Raises :class:`StreamSerializationError` for messages that cannot be kept.
    """
    deferred = _deferred(order.messages)
    body = None if order.body is None else codec.encode(order.body, limit=NO_LIMIT)
    while True:
        pk = conversations.ensure(ref)
        with door.atomic():
            held = conversations.lock(pk, ref.wake_key)
            if held is not None:
                calls.announce(ref)
                return _place(held, order, deferred, body)


def _place(
    held: conversations.Locked, order: Order, deferred: str | None, body: str | None
) -> TurnRecord:
    known = queue.by_request(held.pk, order.request_id)
    if known is not None:
        return known
    alias = door.alias()
    row = Turn(
        conversation_id=held.pk,
        request_id=order.request_id,
        request_key=ids.hash_key(order.request_id),
        position=held.turn_cursor,
        trigger=order.trigger,
        continuation=order.trigger == CONTINUE,
        body=body,
        generation=held.generation,
        origin_ids=codec.encode(list(order.origin_ids)),
        user_key=order.user_key,
        deferred=deferred,
        created_at=clock.now(alias),
    )
    if order.held is not None:
        row.lease_expires_at = clock.after(alias, order.held)
    row.save(using=alias, force_insert=True)
    rows = Conversation.objects.using(alias).filter(pk=held.pk)
    rows.update(turn_cursor=held.turn_cursor + 1)
    _tell(held, order.request_id)
    return queue.record(row)


def come(ref: ConversationRef, request_id: str, lease: float) -> bool | None:
    """Whether the time of a held turn has come; its lease is renewed.

    None if it waits no more: it was stopped, or a clear overtook it.
    """
    # Not one that was brought meanwhile: it would be held again, by nobody.
    rows = _waiting(ref, request_id).exclude(lease_expires_at=None)
    if not rows.update(lease_expires_at=clock.after(door.alias(), lease)):
        return None
    own = rows.values_list("conversation_id", "position").first()
    if own is None:
        return None
    pk, position = own
    ahead = queue.turns().filter(
        conversation_id=pk,
        position__lt=position,
        status__in=(TurnStatus.QUEUED.value, TurnStatus.RUNNING.value),
    )
    return not ahead.exists()


def bring(
    ref: ConversationRef,
    request_id: str,
    messages: Sequence[UIMessage],
    origin_ids: Sequence[str],
) -> bool:
    """Give a held turn its messages and let it run; False if it waits no more."""
    deferred = _deferred(messages)
    with door.atomic():
        pk = conversations.find(ref)
        held = None if pk is None else conversations.lock(pk, ref.wake_key)
        brought = held is not None and _waiting(ref, request_id).update(
            deferred=deferred,
            origin_ids=codec.encode(list(origin_ids)),
            lease_expires_at=None,
        )
        if held is None or not brought:
            return False
        calls.announce(ref)
        _tell(held, request_id)
        return True


def give_up(ref: ConversationRef, request_id: str) -> None:
    """End a held turn as skipped, at once; nothing if it waits no more."""
    with door.atomic():
        pk = conversations.find(ref)
        held = None if pk is None else conversations.lock(pk, ref.wake_key)
        turn = None if held is None else queue.by_request(held.pk, request_id)
        if held is not None and turn is not None:
            queue.end_queued(held.wake_key, turn, TurnStatus.SKIPPED)


def _waiting(ref: ConversationRef, request_id: str) -> Any:
    return queue.turns().filter(
        conversation__key=ref.key,
        request_key=ids.hash_key(request_id),
        status=TurnStatus.QUEUED.value,
    )


def _deferred(messages: Sequence[UIMessage] | None) -> str | None:
    if messages is None:
        return None
    transcript.prepare(messages)
    return codec.encode(list(messages), limit=NO_LIMIT, what="list of messages")


def _tell(held: conversations.Locked, request_id: str) -> None:
    conversations.emit(
        held.pk, held.wake_key, EventKind.SUBMITTED, turn=request_id, connection=""
    )
