"""Conversation rows and their event log.

Every change of a conversation happens under the lock of its row, which
:func:`lock` takes by an UPDATE: in that transaction nothing may be read before
it (under REPEATABLE READ the snapshot would be older than the lock).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError
from django.db.models import F

from .. import codec
from ..models import Conversation, ConversationEvent
from . import clock, door
from .records import ConversationRef, Event, EventKind

NO_LIMIT = 1 << 62
"""Messages may be larger than a chunk; the transport limits them."""


@dataclass(frozen=True, slots=True)
class Locked:
    """A conversation whose row this transaction holds."""

    pk: int
    generation: int
    wake_key: str
    event_cursor: int
    turn_cursor: int


def find(ref: ConversationRef) -> int | None:
    """The row's id; None before the first submit."""
    return (
        Conversation.objects.using(door.alias())
        .filter(key=ref.key)
        .values_list("pk", flat=True)
        .first()
    )


def ensure(ref: ConversationRef) -> int:
    """The row's id, made if there is none. Call it outside a transaction."""
    found = find(ref)
    if found is not None:
        return found
    alias = door.alias()
    now = clock.now(alias)
    try:
        with door.atomic():
            row = Conversation(
                agent=ref.agent,
                name=ref.name,
                owner_key=ref.owner,
                key=ref.key,
                created_at=now,
                updated_at=now,
            )
            row.save(using=alias, force_insert=True)
            return int(row.pk)
    except IntegrityError:
        # Another process made it; its row is committed, or we would wait.
        return ensure(ref)


def lock(pk: int, wake_key: str) -> Locked | None:
    """Lock the row until the transaction ends; None if it is gone."""
    alias = door.alias()
    rows = Conversation.objects.using(alias).filter(pk=pk)
    if not rows.update(updated_at=clock.now(alias)):
        return None
    generation, events, turns = rows.values_list(
        "generation", "event_cursor", "turn_cursor"
    ).get()
    return Locked(pk, generation, wake_key, events, turns)


def emit(pk: int, wake_key: str, kind: EventKind, **body: Any) -> int:
    """Append an event in the caller's transaction and wake on commit; its seq.

    The number comes from the conversation's row, so events commit in the order
    of their numbers: a reader that has seen one has seen all before it.
    """
    alias = door.alias()
    rows = Conversation.objects.using(alias).filter(pk=pk)
    rows.update(event_cursor=F("event_cursor") + 1)
    seq = int(rows.values_list("event_cursor", flat=True).get())
    ConversationEvent(
        conversation_id=pk,
        seq=seq,
        kind=kind.value,
        body=codec.encode(body, limit=NO_LIMIT, what="event"),
        created_at=clock.now(alias),
    ).save(using=alias, force_insert=True)
    door.wake_on_commit(wake_key)
    return seq


def events_after(key: str, seq: int, limit: int) -> Sequence[Event]:
    """The events that follow *seq*, oldest first, at most *limit*."""
    rows = (
        ConversationEvent.objects.using(door.alias())
        .filter(conversation__key=key, seq__gt=seq)
        .order_by("seq")
        .values_list("seq", "kind", "body")[:limit]
    )
    return [
        Event(number, EventKind(kind), codec.decode(body) if body else {})
        for number, kind, body in rows
    ]


def ref_of(pk: int) -> ConversationRef:
    """Which conversation the row is."""
    agent, name, owner = (
        Conversation.objects.using(door.alias())
        .values_list("agent", "name", "owner_key")
        .get(pk=pk)
    )
    return ConversationRef(agent, name, owner)


def wake_key_of(pk: int) -> str:
    """The key under which followers of a conversation wait."""
    return ref_of(pk).wake_key
