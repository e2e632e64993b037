"""What happens to a conversation when a queued turn's time has come.

In the transaction that claims the turn: the messages it brings are stored, those
that were merged become one, a continuation finds the message it adds to, and the
answers that a regeneration replaces go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .. import codec
from ..models import Conversation, Turn
from . import conversations, door, removal, transcript
from .policy import CONTINUE, SAVE
from .records import EventKind


@dataclass(frozen=True, slots=True)
class Ready:
    """What the claim sets on the turn's row."""

    fields: dict[str, Any] = field(default_factory=dict)
    runs: bool = True
    """False: there is nothing to run, and the turn ends as skipped."""


def make_ready(row: Turn) -> Ready:
    """Carry out what *row* brings; the conversation's row must be locked."""
    pk = row.conversation_id
    fields: dict[str, Any] = {}
    if row.trigger == CONTINUE and not row.attempt:
        last = transcript.last_answer(pk)
        of = row.message_id
        if last is None or (of and transcript.find(pk, of) is None):
            return Ready(runs=False)
        fields["message_id"] = last
    if row.trigger in (SAVE, CONTINUE):
        fields |= _last_request(row)
    changed = False
    if row.replaces_after is not None:
        changed = removal.drop_answers(pk, row.replaces_after, row.position)
    if row.deferred is not None:
        given = transcript.prepare(codec.decode(row.deferred))
        transcript.merge(pk, given, prune=False, overwrite=True)
        fields["deferred"] = None
        changed = True
    joined = codec.decode(row.joined_ids)
    if len(joined) > 1:
        changed = transcript.join(pk, joined) or changed
    if changed:
        key = conversations.wake_key_of(pk)
        conversations.emit(pk, key, EventKind.MESSAGES, connection="")
    return Ready(fields)


def _last_request(row: Turn) -> dict[str, Any]:
    """What the last request of a client brought, as far as *row* lacks it."""
    rows = Conversation.objects.using(door.alias()).filter(pk=row.conversation_id)
    body, tools = rows.values_list("last_body", "last_client_tools").get()
    return {
        "body": body if row.body is None else row.body,
        "client_tools": tools if row.client_tools is None else row.client_tools,
    }
