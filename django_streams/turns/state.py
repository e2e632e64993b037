"""The state that a conversation's clients and its agent share: any JSON value."""

from __future__ import annotations

from typing import Any

from .. import codec
from ..models import Conversation
from . import conversations, door
from .conversations import NO_LIMIT
from .records import ConversationRef, EventKind


def encode(value: Any) -> str:
    """Raises :class:`StreamSerializationError` for what cannot be kept."""
    return codec.encode(value, limit=NO_LIMIT, what="state")


def load(ref: ConversationRef) -> str | None:
    """The state as JSON text; None if none was ever stored."""
    rows = Conversation.objects.using(door.alias()).filter(key=ref.key)
    return rows.values_list("state", flat=True).first()


def store(ref: ConversationRef, value: Any, connection: str = "") -> None:
    """Replace the state and tell everybody but *connection*."""
    text = encode(value)
    while True:
        pk = conversations.ensure(ref)
        with door.atomic():
            if conversations.lock(pk, ref.wake_key) is not None:
                Conversation.objects.using(door.alias()).filter(pk=pk).update(
                    state=text
                )
                conversations.emit(
                    pk, ref.wake_key, EventKind.STATE, connection=connection
                )
                return
