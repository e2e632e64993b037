"""What a conversation is doing, as the database knows it."""

from __future__ import annotations

from django.db.models import BooleanField, ExpressionWrapper, Q

from ..models import Conversation
from . import clock, conversations, door, queue
from .records import ConversationRef, Snapshot, TurnRecord, TurnStatus


def snapshot(ref: ConversationRef) -> Snapshot:
    """The conversation now; an empty snapshot before its first submit.

    The position in the event log is read first: what changes between the reads
    is met again when the events are followed, and never missed.
    """
    alias = door.alias()
    found = (
        Conversation.objects.using(alias)
        .filter(key=ref.key)
        .values_list("pk", "event_cursor", "generation")
        .first()
    )
    if found is None:
        return Snapshot()
    pk, events, generation = found
    mine = queue.turns().filter(conversation_id=pk)
    newest = mine.order_by("-position").first()
    if newest is None:
        return Snapshot(events=events)
    over = Q(lease_expires_at__lt=clock.now(alias))
    running = (
        mine.filter(running_of_id=pk)
        .annotate(lapsed=ExpressionWrapper(over, output_field=BooleanField()))
        .first()
    )
    queued = mine.filter(status=TurnStatus.QUEUED.value).order_by("-position").first()
    failed = (
        newest.status == TurnStatus.ERRORED.value and newest.generation == generation
    )
    return Snapshot(
        events=events,
        running=None if running is None else queue.record(running),
        queued=None if queued is None else queue.record(queued),
        failed=queue.record(newest) if failed else None,
        lapsed=running is not None and bool(running.lapsed),
    )


def find_turn(ref: ConversationRef, request_id: str) -> TurnRecord | None:
    """The turn of that request in this conversation."""
    pk = conversations.find(ref)
    return None if pk is None else queue.by_request(pk, request_id)
