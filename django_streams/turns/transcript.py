"""The messages of a conversation: read as texts, written by id."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db.models import Max

from .. import codec, ids
from ..models import Message
from . import clock, door
from .conversations import NO_LIMIT
from .records import ConversationRef, UIMessage


def texts(ref: ConversationRef) -> Sequence[str]:
    """The messages as JSON texts, oldest first; empty without a conversation."""
    return list(
        Message.objects.using(door.alias())
        .filter(conversation__key=ref.key)
        .order_by("position")
        .values_list("body", flat=True)
    )


def load(conversation_pk: int) -> list[UIMessage]:
    """The messages as values, oldest first."""
    rows = (
        Message.objects.using(door.alias())
        .filter(conversation_id=conversation_pk)
        .order_by("position")
        .values_list("body", flat=True)
    )
    return [codec.decode(body) for body in rows]


class Given:
    """A message of a client's list, and how it is stored."""

    def __init__(self, message: UIMessage) -> None:
        self.id: str = message["id"]
        self.role: str = message["role"]
        self.key = ids.hash_key(self.id)
        self._message = message

    @cached_property
    def text(self) -> str:
        """Raises :class:`StreamSerializationError` for what cannot be kept."""
        return _encode(self._message)


def prepare(messages: Sequence[UIMessage]) -> list[Given]:
    """The list in the form that :func:`merge` takes.

    Encodes what will be compared or stored, so that a long list does not hold
    the conversation's lock meanwhile. Raises
    :class:`StreamSerializationError` for a message that cannot be kept.
    """
    given = {message["id"]: Given(message) for message in messages}
    for message in given.values():
        if message.role != "assistant":
            _ = message.text
    return list(given.values())


def merge(
    conversation_pk: int, given: Sequence[Given], *, prune: bool, keep: str = ""
) -> None:
    """Store a client's list: known ids stay in place, new ones go to the end.

    What the server wrote is not overwritten: a client that lost its connection
    holds a shorter copy of a reply. With *prune* rows that the list lacks are
    deleted, but only if every id in it is known (a regenerated or edited
    conversation); a list with something new comes from a client that may not
    have seen all. The message with the id *keep*, which a running turn is
    still writing, is neither inserted nor deleted.
    """
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    known = {
        key: (pk, role, body)
        for pk, key, role, body in rows.values_list("pk", "message_key", "role", "body")
    }
    kept = ids.hash_key(keep) if keep else None
    given = [message for message in given if message.key != kept]
    new = [message for message in given if message.key not in known]
    for message in given:
        pk, role, body = known.get(message.key, (None, "", ""))
        if pk is None or role == "assistant" or message.role != role:
            continue
        if message.text != body:
            rows.filter(pk=pk).update(
                body=message.text, updated_at=clock.now(door.alias())
            )
    if prune and given and not new:
        listed = {message.key for message in given}
        gone = [pk for key, (pk, *_) in known.items() if key not in listed]
        rows.filter(pk__in=gone).exclude(message_key=kept or "").delete()
    _insert(conversation_pk, new)


def upsert(conversation_pk: int, message: UIMessage) -> None:
    """Store a message of the server's own, in place or at the end."""
    alias = door.alias()
    changed = (
        Message.objects.using(alias)
        .filter(
            conversation_id=conversation_pk, message_key=ids.hash_key(message["id"])
        )
        .update(body=_encode(message), updated_at=clock.now(alias))
    )
    if not changed:
        _insert(conversation_pk, [Given(message)])


def delete_all(conversation_pk: int) -> None:
    Message.objects.using(door.alias()).filter(conversation_id=conversation_pk).delete()


def _insert(conversation_pk: int, messages: Sequence[Given]) -> None:
    if not messages:
        return
    alias = door.alias()
    rows = Message.objects.using(alias).filter(conversation_id=conversation_pk)
    last = rows.aggregate(last=Max("position"))["last"]
    first = 0 if last is None else last + 1
    now: Any = clock.now(alias)
    Message.objects.using(alias).bulk_create(
        Message(
            conversation_id=conversation_pk,
            message_id=message.id,
            message_key=message.key,
            role=message.role,
            position=first + i,
            body=message.text,
            created_at=now,
            updated_at=now,
        )
        for i, message in enumerate(messages)
    )


def _encode(message: UIMessage) -> str:
    return codec.encode(message, limit=NO_LIMIT, what="message")
