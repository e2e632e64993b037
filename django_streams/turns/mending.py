"""The messages a turn runs on: calls that nobody will answer are answered first."""

from __future__ import annotations

from ..messages import repaired
from ..messages.answers import client_tool_names
from . import continuing, conversations, door, queue, transcript
from .records import EventKind, TurnRecord, TurnStatus, UIMessage


def load(turn: TurnRecord, wake_key: str) -> list[UIMessage]:
    """The conversation's messages, without an open call but those that a client
    or a continuation may still answer. What had to be changed is stored, and
    everybody is told; mostly nothing has to.
    """
    messages = transcript.load(turn.conversation_pk)
    if not _changes(turn, messages):
        return messages
    with door.atomic():
        conversations.lock(turn.conversation_pk, wake_key)
        # Again, under the lock: a result may have come in between.
        messages = transcript.load(turn.conversation_pk)
        changes = {message["id"]: message for message in _changes(turn, messages)}
        for message in changes.values():
            transcript.upsert(turn.conversation_pk, message)
        if changes:
            conversations.emit(turn.conversation_pk, wake_key, EventKind.MESSAGES)
    return [changes.get(message["id"], message) for message in messages]


def _changes(turn: TurnRecord, messages: list[UIMessage]) -> list[UIMessage]:
    tools = client_tool_names(turn.client_tools)
    if not turn.continuation:
        changes = repaired(messages, client_tools=tools)
        if not changes or not _continuation_waits(turn):
            return changes
    return repaired(messages, client_tools=tools, continues=True)


def _continuation_waits(turn: TurnRecord) -> bool:
    return continuing.is_wanted(turn.conversation_pk) or (
        queue.turns()
        .filter(
            conversation_id=turn.conversation_pk,
            status=TurnStatus.QUEUED.value,
            continuation=True,
        )
        .exists()
    )
