"""Turns as rows: the queue of a conversation, decided in the database alone.

A turn is submitted once by its request id, claimed by one conditional update,
and only one of a conversation runs at a time because ``running_of`` is unique:
a violation means that somebody else runs. Which turns overlap is asked under
the lock of the conversation, so two submits at once have one order everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import IntegrityError
from django.db.models import F, QuerySet

from .. import codec, ids
from ..models import Conversation, Turn
from . import calls, clock, conversations, door, removal, rows, transcript
from .conversations import NO_LIMIT
from .policy import REGENERATE, SUBMIT, Concurrency, Decision, decide
from .ready import Ready, make_ready
from .records import (
    ConversationRef,
    Ending,
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
    trigger: str = SUBMIT
    body: dict[str, Any] | None = None
    client_tools: list[Any] | None = None
    user_key: str = ""
    connection: str = ""
    """Names the asking connection to itself in the event log."""
    concurrency: Concurrency = "queue"
    """What to do if it overlaps another turn."""
    keep_messages: int | None = None
    """The oldest messages beyond so many are deleted."""
    prune: bool = True
    """Messages that the list lacks are deleted if it holds nothing new."""


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
                calls.announce(ref)
                return _submit(held, submission, given)
        # Deleted between the two statements: the next round makes it anew.


def _submit(
    held: conversations.Locked, submission: Submission, given: list[transcript.Given]
) -> Submitted:
    known = by_request(held.pk, submission.request_id)
    if known is not None:
        return Submitted(known, created=False)
    decision = _decide(held, submission)
    if not decision.accept:
        # A row all the same: the request must not run when it comes again.
        return Submitted(record(_insert(held, submission, decision)), created=True)
    running = turns().filter(running_of_id=held.pk).first()
    keep = running.message_id if running is not None else ""
    new = transcript.merge(held.pk, given, prune=submission.prune, keep=keep)
    again = submission.trigger == REGENERATE
    replaces_after = transcript.end(held.pk, keep) if again else None
    removal.trim(held.pk, submission.keep_messages)
    joined = [one for one in submission.origin_ids if one in new]
    if decision.overtake:
        joined = [*_overtake(held), *joined]
    row = _insert(
        held,
        submission,
        decision,
        joined if decision.join else (),
        replaces_after=replaces_after,
    )
    Conversation.objects.using(door.alias()).filter(pk=held.pk).update(
        last_body=row.body, last_client_tools=row.client_tools
    )
    conversations.emit(
        held.pk,
        held.wake_key,
        EventKind.SUBMITTED,
        turn=submission.request_id,
        connection=submission.connection,
    )
    return Submitted(record(row), created=True)


def _decide(held: conversations.Locked, submission: Submission) -> Decision:
    # What an earlier generation left is on its way out: it overlaps nothing.
    current = turns().filter(
        conversation_id=held.pk,
        generation=held.generation,
        status__in=(TurnStatus.QUEUED.value, TurnStatus.RUNNING.value),
    )
    return decide(submission.concurrency, submission.trigger, overlaps=current.exists())


def _overtake(held: conversations.Locked) -> list[str]:
    """Skip the overlapping turns that wait; the messages they would have joined."""
    waiting = turns().filter(
        conversation_id=held.pk, status=TurnStatus.QUEUED.value, overlapping=True
    )
    joined: list[str] = []
    for row in waiting.order_by("position"):
        joined += codec.decode(row.joined_ids)
        end_queued(held.wake_key, record(row), TurnStatus.SKIPPED)
    return joined


def _insert(
    held: conversations.Locked,
    submission: Submission,
    decision: Decision,
    joined: Sequence[str] = (),
    replaces_after: int | None = None,
) -> Turn:
    alias = door.alias()
    now: Any = clock.now(alias)
    row = Turn(
        conversation_id=held.pk,
        request_id=submission.request_id,
        request_key=ids.hash_key(submission.request_id),
        position=held.turn_cursor,
        trigger=submission.trigger,
        body=_encode(submission.body),
        client_tools=_encode(submission.client_tools),
        generation=held.generation,
        origin_ids=codec.encode(list(submission.origin_ids), limit=NO_LIMIT),
        user_key=submission.user_key,
        overlapping=decision.overlapping,
        joined_ids=codec.encode(list(joined), limit=NO_LIMIT),
        replaces_after=replaces_after,
        created_at=now,
    )
    if decision.delay is not None:
        row.not_before = clock.after(alias, decision.delay)
    if not decision.accept:
        row.status = TurnStatus.SKIPPED.value
        row.finished_at = now
    row.save(using=alias, force_insert=True)
    Conversation.objects.using(alias).filter(pk=held.pk).update(
        turn_cursor=held.turn_cursor + 1
    )
    return row


def claim(conversation_pk: int, *, message_id: str, lease: float) -> TurnRecord | None:
    """Make the oldest queued turn this process's to run; None if there is none,
    its time has not come, or another turn of the conversation runs.

    *message_id* is the id of its reply, unless it continues one, and new at each
    claim; *lease* the seconds after which it counts as abandoned unless renewed.
    """
    # Tells mine from others', also when the answer to the update was lost and
    # this is the second call.
    token = ids.hash_key("claim", message_id)
    head = _head(conversation_pk)
    if head is not None and (head.due or head.forsaken):
        try:
            with door.atomic():
                _claim(conversation_pk, message_id, token, lease)
        except IntegrityError:
            return None
    found = rows.read(
        't."running_of_id" = %s AND t."runner" = %s', [conversation_pk, token]
    )
    return record(found[0][0]) if found else None


def _claim(conversation_pk: int, message_id: str, token: str, lease: float) -> None:
    alias = door.alias()
    held = conversations.lock(conversation_pk, "")
    if held is None or turns().filter(running_of_id=conversation_pk).exists():
        return
    while (head := _head(conversation_pk)) is not None:
        if not head.due and not head.forsaken:
            return
        ready = Ready(runs=False) if head.forsaken else make_ready(head.row)
        if ready.runs:
            values = {"message_id": message_id} | ready.fields
            turns().filter(pk=head.row.pk, status=TurnStatus.QUEUED.value).update(
                status=TurnStatus.RUNNING.value,
                running_of=conversation_pk,
                runner=token,
                epoch=F("epoch") + 1,
                attempt=F("attempt") + 1,
                lease_seconds=lease,
                lease_expires_at=clock.after(alias, lease),
                started_at=clock.now(alias),
                **values,
            )
            return
        key = conversations.wake_key_of(conversation_pk)
        end_queued(key, record(head.row), TurnStatus.SKIPPED)


@dataclass(frozen=True, slots=True)
class _Head:
    """The oldest queued turn: the next to run, and no other before it."""

    row: Turn
    now: datetime
    """By the database's clock."""

    @property
    def wait(self) -> float:
        """Seconds until there is something to do about it."""
        until = self.row.lease_expires_at or self.row.not_before
        return 0.0 if until is None else max(0.0, (until - self.now).total_seconds())

    @property
    def due(self) -> bool:
        return self.row.lease_expires_at is None and not self.wait

    @property
    def forsaken(self) -> bool:
        """Held by a process that no longer keeps it."""
        return self.row.lease_expires_at is not None and not self.wait


def _head(conversation_pk: int) -> _Head | None:
    found = rows.read(
        't."conversation_id" = %s AND t."status" = %s ORDER BY t."position" LIMIT 1',
        [conversation_pk, TurnStatus.QUEUED.value],
    )
    return _Head(*found[0]) if found else None


def due_in(conversation_pk: int) -> float | None:
    """Seconds until the next turn may run, by the database's clock.

    None when nothing waits, or only for a turn that runs.
    """
    if turns().filter(running_of_id=conversation_pk).exists():
        return None
    head = _head(conversation_pk)
    return None if head is None else head.wait


def end_queued(wake_key: str, turn: TurnRecord, status: TurnStatus) -> None:
    """End a turn that waits, in the caller's transaction, and tell it."""
    ended = turns().filter(pk=turn.pk, status=TurnStatus.QUEUED.value)
    if ended.update(
        status=status.value, finished_at=clock.now(door.alias()), lease_expires_at=None
    ):
        tell_ended(turn, wake_key, Ending(status=status))


def tell_ended(turn: TurnRecord, wake_key: str, ending: Ending) -> None:
    """Put a turn's end into the event log, in the caller's transaction."""
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
            base=turn.seq_base,
        )


def sync_messages(
    ref: ConversationRef,
    messages: Sequence[UIMessage],
    connection: str = "",
    keep_messages: int | None = None,
    *,
    overwrite: bool = False,
) -> None:
    """Store a list of messages: what it lacks stays, the others are told.

    *keep_messages*: the oldest beyond so many are deleted. *overwrite*: also
    answers that are stored already.
    """
    given = transcript.prepare(messages)
    while True:
        pk = conversations.ensure(ref)
        with door.atomic():
            held = conversations.lock(pk, ref.wake_key)
            if held is not None:
                running = turns().filter(running_of_id=pk).first()
                keep = running.message_id if running is not None else ""
                transcript.merge(pk, given, prune=False, keep=keep, overwrite=overwrite)
                removal.trim(pk, keep_messages)
                conversations.emit(
                    pk, ref.wake_key, EventKind.MESSAGES, connection=connection
                )
                return


def by_request(conversation_pk: int, request_id: str) -> TurnRecord | None:
    found = rows.read(
        't."conversation_id" = %s AND t."request_key" = %s',
        [conversation_pk, ids.hash_key(request_id)],
    )
    return record(found[0][0]) if found else None


def record(row: Turn) -> TurnRecord:
    """The row as a value."""
    return TurnRecord(
        pk=row.pk,
        conversation_pk=row.conversation_id,
        request_id=row.request_id,
        status=TurnStatus(row.status),
        position=row.position,
        attempt=row.attempt,
        handovers=row.handovers,
        seq_base=row.seq_base,
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
