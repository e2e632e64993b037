"""Deleting messages on purpose: each is noted with the turns that wrote it, for a
message that is missing without such a note is lost."""

from __future__ import annotations

from django.db.models import Exists, OuterRef, QuerySet

from ..models import Message, Turn
from . import door


def remove(conversation_pk: int, rows: QuerySet[Message]) -> None:
    """Delete *rows* of a conversation, in the caller's transaction."""
    written = rows.filter(message_id=OuterRef("message_id"))
    turns = Turn.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    turns.filter(Exists(written)).update(message_gone=True)
    rows.delete()


def trim(conversation_pk: int, limit: int | None) -> None:
    """Delete the oldest messages beyond *limit*; None keeps all."""
    if limit is None:
        return
    rows = Message.objects.using(door.alias()).filter(conversation_id=conversation_pk)
    newest = rows.order_by("-position").values_list("position", flat=True)
    beyond = newest[limit : limit + 1].first()
    if beyond is not None:
        remove(conversation_pk, rows.filter(position__lte=beyond))


def drop_answers(conversation_pk: int, after: int, before_turn: int) -> bool:
    """Delete what turns before the one at *before_turn* said behind the position
    *after*; whether there was anything."""
    alias = door.alias()
    said = Turn.objects.using(alias).filter(
        conversation_id=conversation_pk,
        position__lt=before_turn,
        message_id=OuterRef("message_id"),
    )
    answers = Message.objects.using(alias).filter(
        Exists(said),
        conversation_id=conversation_pk,
        role="assistant",
        position__gt=after,
    )
    pks = list(answers.values_list("pk", flat=True))
    if pks:
        remove(conversation_pk, Message.objects.using(alias).filter(pk__in=pks))
    return bool(pks)
