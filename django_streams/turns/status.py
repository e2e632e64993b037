"""What a conversation is doing, as the database knows it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ..models import Conversation, Turn
from . import awaited, conversations, queue, rows
from .records import ConversationRef, Snapshot, TurnRecord, TurnStatus

_CONVERSATION: Final = f'"{Conversation._meta.db_table}"'
_NEWEST = (
    f'(SELECT n."id" FROM {rows.TABLE} n WHERE n."conversation_id" = %s '
    'AND n."status" {} %s ORDER BY n."position" DESC LIMIT 1)'
)


def snapshot(ref: ConversationRef) -> Snapshot:
    """The conversation now; an empty snapshot before its first submit.

    The position in the event log is read first: what changes between the reads
    is met again when the events are followed, and never missed.
    """
    # Asked by every visitor, more than once. Built by the ORM these two take six
    # milliseconds of the processor.
    found = rows.store().row(
        f'SELECT "id", "event_cursor", "generation", "awaited" FROM {_CONVERSATION} '
        'WHERE "key" = %s',
        [ref.key],
    )
    if found is None:
        return Snapshot()
    pk, events, generation, answers = found
    wanted = awaited.read(answers).wanted
    known = _known(pk)
    # What was skipped said nothing: an error before it is still the last word.
    spoke = [row for row, _ in known if row.status != TurnStatus.SKIPPED.value]
    if not spoke:
        return Snapshot(events=events)
    running = [(row, now) for row, now in known if row.running_of_id == pk]
    queued = [row for row in spoke if row.status == TurnStatus.QUEUED.value]
    newest = spoke[-1]
    failed = (
        newest.status == TurnStatus.ERRORED.value and newest.generation == generation
    )
    return Snapshot(
        events=events,
        running=queue.record(running[0][0]) if running else None,
        queued=queue.record(queued[-1]) if queued else None,
        failed=queue.record(newest) if failed else None,
        wanted=None if wanted is None else wanted.request_id,
        owner="" if wanted is None else wanted.owner,
        lapsed=any(
            row.lease_expires_at is not None and row.lease_expires_at < now
            for row, now in running
        ),
    )


def _known(pk: int) -> list[tuple[Turn, datetime]]:
    """The turn that runs, the newest queued one and the newest that was not
    skipped, in order, and the time.

    In one statement: a turn that is claimed meanwhile is met once.
    """
    return rows.read(
        f't."id" = (SELECT r."id" FROM {rows.TABLE} r WHERE r."running_of_id" = %s) '
        f'OR t."id" = {_NEWEST.format("=")} OR t."id" = {_NEWEST.format("<>")} '
        'ORDER BY t."position"',
        [pk, pk, TurnStatus.QUEUED.value, pk, TurnStatus.SKIPPED.value],
    )


def find_turn(ref: ConversationRef, request_id: str) -> TurnRecord | None:
    """The turn of that request in this conversation."""
    pk = conversations.find(ref)
    return None if pk is None else queue.by_request(pk, request_id)


@dataclass(frozen=True, slots=True)
class Rest:
    """A conversation in which nothing runs or waits."""

    newest: TurnRecord | None


def at_rest(ref: ConversationRef) -> Rest | None:
    """Its newest turn, once none of its turns runs or waits; else None."""
    mine = queue.turns().filter(conversation__key=ref.key)
    on = mine.filter(status__in=(TurnStatus.QUEUED.value, TurnStatus.RUNNING.value))
    if on.exists():
        return None
    newest = mine.order_by("-position").first()
    return Rest(None if newest is None else queue.record(newest))
