"""Continuations that answers to tool calls ask for.

One is wanted from the first answer that asks for it, and queued as a turn once
the newest reply has all its answers and no turn runs. Until then it is a part of
the conversation's row, and anybody may stop it under the id it will have. It ends
when the reply whose calls were answered is deleted, and, while that one's other
calls are open, when another reply is newer.
"""

from __future__ import annotations

import secrets
import string
from typing import Any, Final

from .. import ids
from ..messages import answers as changes
from ..models import Turn
from . import awaited, calls, clock, conversations, door, queue, transcript
from .awaited import Wanted
from .conversations import Locked
from .policy import CONTINUE
from .records import ConversationRef, Ending, EventKind, TurnRecord, TurnStatus

_ALPHABET: Final = string.ascii_letters + string.digits + "_-"

_NOTHING: Final = "null"
"""In a turn's row: the client brought none. A row without a value takes what the
last request brought, which may have come since."""


def want(
    held: Locked,
    *,
    user_key: str,
    owner: str,
    sure: bool,
    message_id: str,
    waits: bool,
) -> str:
    """Note that a continuation is wanted, with what the client last brought; the
    id it has, or will have.

    *owner* is the connection that asks. *sure*: its answer has found its call, in
    the message *message_id*; else that is being written. *waits*: other calls of
    it are open.
    """
    known = awaited.rows(held).values_list("last_body", "last_client_tools").get()
    body, tools = (_NOTHING if value is None else value for value in known)
    row = _queued(held).order_by("-position").first()
    if row is not None:
        if row.client_tools is not None:
            # Not one that code has ordered, with what it shall bring.
            _queued(held).filter(pk=row.pk).update(body=body, client_tools=tools)
        return str(row.request_id)
    waiting = awaited.load(held)
    before = waiting.wanted
    if before is not None and before.message_id != message_id:
        if before.waits:
            _tell_dropped(held, before, TurnStatus.SKIPPED)
            before = None
        else:
            message_id, waits = before.message_id, False
    waiting.wanted = Wanted(
        request_id=before.request_id if before else _new_id(),
        body=body,
        client_tools=tools,
        user_key=user_key,
        sure=sure or (before is not None and before.sure),
        owner=owner,
        message_id=message_id,
        waits=waits,
    )
    awaited.store(held, waiting)
    return waiting.wanted.request_id


def release(held: Locked, ref: ConversationRef | None = None) -> None:
    """Queue the continuation that is wanted, if its time has come."""
    wanted = awaited.load(held).wanted
    if wanted is None or queue.turns().filter(running_of_id=held.pk).exists():
        return
    of = wanted.message_id
    if not wanted.sure:
        # No reply had the calls that were answered.
        awaited.forget(held)
        _tell_dropped(held, wanted, TurnStatus.SKIPPED)
    elif (of and transcript.find(held.pk, of) is None) or (
        wanted.waits and transcript.last_answer(held.pk) != of
    ):
        _drop(held, TurnStatus.SKIPPED)
    elif not changes.is_half_answered(transcript.load(held.pk)):
        _queue(held, wanted)
        calls.announce(ref or conversations.ref_of(held.pk))


def go_on(held: Locked, turn: TurnRecord, ending: Ending) -> None:
    """A turn has ended: what is wanted runs now, waits on, or is not wanted any
    more.

    That is so when somebody stopped the turn, when it was a continuation and
    failed, and when its model said by itself that there is nothing to add.
    """
    if held.generation == turn.generation and (
        ending.status is TurnStatus.ABORTED
        or (ending.status is TurnStatus.ERRORED and turn.continuation)
        or (ending.says_all and not changes.is_half_answered(transcript.load(held.pk)))
    ):
        _drop(held, TurnStatus.SKIPPED)
    else:
        release(held)


def stop(held: Locked, request_id: str | None = None) -> None:
    """Drop the continuation that is wanted, or only the one of that id."""
    _drop(held, TurnStatus.ABORTED, request_id)


def leave(ref: ConversationRef, owner: str) -> None:
    """A connection is gone: what it waited for is anybody's to resume."""
    pk = conversations.find(ref)
    if pk is None:
        return
    with door.atomic():
        held = conversations.lock(pk, ref.wake_key)
        if held is None:
            return
        waiting = awaited.load(held)
        if waiting.wanted is not None and waiting.wanted.owner == owner:
            waiting.wanted = waiting.wanted.of("")
            awaited.store(held, waiting)


def is_wanted(conversation_pk: int) -> bool:
    """Whether a continuation waits for further answers."""
    return awaited.peek(conversation_pk).wanted is not None


def _queued(held: Locked) -> Any:
    return queue.turns().filter(
        conversation_id=held.pk,
        status=TurnStatus.QUEUED.value,
        generation=held.generation,
        trigger=CONTINUE,
    )


def _queue(held: Locked, wanted: Wanted) -> None:
    _unwant(held)
    cursor = awaited.rows(held).values_list("turn_cursor", flat=True).get()
    Turn(
        conversation_id=held.pk,
        request_id=wanted.request_id,
        request_key=ids.hash_key(wanted.request_id),
        position=cursor,
        trigger=CONTINUE,
        continuation=True,
        message_id=wanted.message_id,
        body=wanted.body,
        client_tools=wanted.client_tools,
        generation=held.generation,
        user_key=wanted.user_key,
        created_at=clock.now(door.alias()),
    ).save(using=door.alias(), force_insert=True)
    awaited.rows(held).update(turn_cursor=cursor + 1)


def _drop(held: Locked, status: TurnStatus, request_id: str | None = None) -> None:
    wanted = awaited.load(held).wanted
    if wanted is not None and request_id in (None, wanted.request_id):
        _unwant(held)
        _tell_dropped(held, wanted, status)


def _unwant(held: Locked) -> None:
    waiting = awaited.load(held)
    waiting.wanted = None
    awaited.store(held, waiting)


def _tell_dropped(held: Locked, wanted: Wanted, status: TurnStatus) -> None:
    conversations.emit(
        held.pk,
        held.wake_key,
        EventKind.ENDED,
        turn=wanted.request_id,
        status=status.value,
        stream="",
        continuation=True,
    )


def _new_id() -> str:
    # As long as those that the official server makes.
    return "".join(secrets.choice(_ALPHABET) for _ in range(21))
