"""The messages of a conversation: read as texts, written by id."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from django.db.models import Max, QuerySet

from .. import codec, ids
from ..messages import reconcile, sanitise, stale_ids, taken, valid
from ..models import Message
from . import clock, door, removal
from .conversations import NO_LIMIT
from .records import ConversationRef, UIMessage

logger = logging.getLogger("django_streams.turns")


def texts(ref: ConversationRef) -> Sequence[str]:
    """The messages as JSON texts, oldest first; empty without a conversation.

    What was damaged in the database is left out and logged: one broken row must
    not take the others from every client.
    """
    rows = Message.objects.using(door.alias()).filter(conversation__key=ref.key)
    return [text for text, _ in _valid(rows)]


def load(conversation_pk: int) -> list[UIMessage]:
    """The messages as values, oldest first, without damaged ones."""
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    return [message for _, message in _valid(rows)]


def _valid(rows: QuerySet[Message]) -> Iterator[tuple[str, UIMessage]]:
    for pk, body in rows.order_by("position").values_list("pk", "body"):
        message = valid.read(body)
        if message is None:
            logger.warning("message row %s holds no message and is left out", pk)
        else:
            yield body, message


def find(conversation_pk: int, message_id: str) -> UIMessage | None:
    """The stored message of that id."""
    rows = Message.objects.using(door.alias()).filter(
        conversation_id=conversation_pk, message_key=ids.hash_key(message_id)
    )
    body = rows.values_list("body", flat=True).first()
    return None if body is None else codec.decode(body)


def text_of(ref: ConversationRef, message_id: str) -> str | None:
    """The JSON of the stored message of that id."""
    rows = Message.objects.using(door.alias()).filter(
        conversation__key=ref.key, message_key=ids.hash_key(message_id)
    )
    return rows.values_list("body", flat=True).first()


class Given:
    """A message of a client's list, and how it is stored."""

    def __init__(self, message: UIMessage) -> None:
        self.id: str = message["id"]
        self.role: str = message["role"]
        self.key = ids.hash_key(self.id)
        self.message = message

    @cached_property
    def text(self) -> str:
        """Raises :class:`StreamSerializationError` for what cannot be kept."""
        return _encode(self.message)


class Stored:
    """A message's row as it was when read."""

    def __init__(self, pk: int, message_id: str, role: str, body: str) -> None:
        self.pk = pk
        self.id = message_id
        self.role = role
        self.body = body

    @cached_property
    def message(self) -> UIMessage:
        """Empty for a damaged row: what a client has of it then replaces it."""
        empty = {"id": self.id, "role": self.role, "parts": []}
        return valid.read(self.body) or empty


def prepare(messages: Sequence[UIMessage]) -> list[Given]:
    """The list in the form that :func:`merge` takes, without what is never stored.

    Encodes what will be compared or stored, so that a long list does not hold
    the conversation's lock meanwhile. Raises
    :class:`StreamSerializationError` for a message that cannot be kept.
    """
    given = {message["id"]: Given(sanitise(message)) for message in messages}
    for message in given.values():
        _ = message.text
    return list(given.values())


def merge(
    conversation_pk: int,
    given: Sequence[Given],
    *,
    prune: bool,
    keep: str = "",
    overwrite: bool = False,
) -> set[str]:
    """Store a client's list: known messages stay in place, new ones go to the end.

    A reply under a client's own id is known by its content (see ``reconcile``).
    Of a copy of a reply only what it adds is stored: a client that lost its
    connection holds a shorter one (see ``taken``). With *prune* rows that the
    list lacks are deleted, but only if everything in it is known (a regenerated
    or edited conversation). The message with the id *keep*, which a running turn
    is still writing, is neither changed nor deleted. Returns the new ids.

    With *overwrite* the list is not a client's but the project's own: ids are
    what they say, and replies are replaced too.
    """
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    stored = {
        row[1]: Stored(*row)
        for row in rows.order_by("position").values_list(
            "pk", "message_id", "role", "body"
        )
    }
    if not overwrite:
        given = _known(given, stored)
    given = [message for message in given if message.id != keep]
    new = [message for message in given if message.id not in stored]
    for message in given:
        row = stored.get(message.id)
        text = None if row is None else _changed(row, message, overwrite)
        if row is not None and text is not None:
            rows.filter(pk=row.pk).update(body=text, updated_at=clock.now(door.alias()))
    if prune:
        gone = set(stale_ids({message.id for message in given}, stored)) - {keep}
        removal.remove(
            conversation_pk, rows.filter(pk__in=[stored[one].pk for one in gone])
        )
    _insert(conversation_pk, new)
    return {message.id for message in new}


def _known(given: Sequence[Given], stored: dict[str, Stored]) -> Sequence[Given]:
    """The list under the ids of the rows that its messages are copies of."""
    if all(one.role != "assistant" or one.id in stored for one in given):
        return given
    by_identity = {id(one.message): one for one in given}
    reconciled = reconcile(
        [one.message for one in given], [row.message for row in stored.values()]
    )
    return [by_identity.get(id(message)) or Given(message) for message in reconciled]


def _changed(row: Stored, given: Given, overwrite: bool) -> str | None:
    """The new body of a row after a client sent its copy; None for no change."""
    if given.role != row.role or given.text == row.body:
        return None
    if overwrite or row.role != "assistant":
        return given.text
    message = taken(given.message, row.message)
    return None if message is None else _encode(message)


def end(conversation_pk: int, but: str = "") -> int:
    """The position of the last message, not counting the one with the id *but*;
    -1 without any."""
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    last = rows.exclude(message_id=but).aggregate(last=Max("position"))["last"]
    return -1 if last is None else last


def join(conversation_pk: int, message_ids: Sequence[str]) -> bool:
    """Make the user messages of these ids one, which keeps the last one's id and
    place. False when fewer than two are left."""
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    keys = [ids.hash_key(one) for one in message_ids]
    found = rows.filter(message_key__in=keys, role="user").order_by("position")
    bodies = list(found.values_list("pk", "body"))
    if len(bodies) < 2:
        return False
    whole = joined([codec.decode(body) for _, body in bodies])
    *earlier, last = [pk for pk, _ in bodies]
    rows.filter(pk__in=earlier).delete()
    rows.filter(pk=last).update(body=_encode(whole), updated_at=clock.now(door.alias()))
    return True


def joined(messages: Sequence[UIMessage]) -> UIMessage:
    """One message of several: the last one, with the texts of all, a blank line
    between them, and then whatever else they hold, in order."""
    texts = []
    others = []
    for message in messages:
        parts = message["parts"]
        texts.append("".join(p.get("text", "") for p in parts if _is_text(p)))
        others += [part for part in parts if not _is_text(part)]
    text = "\n\n".join(text for text in texts if text)
    first = [{"type": "text", "text": text}] if text else []
    return {**messages[-1], "parts": [*first, *others]}


def _is_text(part: dict[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text", ""), str)


def last_answer(conversation_pk: int) -> str | None:
    """The id of the newest message of the assistant."""
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    answers = rows.filter(role="assistant").order_by("-position")
    return answers.values_list("message_id", flat=True).first()


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
    first = end(conversation_pk) + 1
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
