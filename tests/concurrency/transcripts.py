"""Whether the stored chats of ``Counting`` are what was asked and said."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django_streams.models import Message, Turn
from tests.integration.chatting import message_text

from .fleet_site import words


def inexact(alias: str) -> list[str]:
    """What is wrong with them, once nothing runs: a reply that lacks a word or has
    one twice, a partial that is not the reply's beginning, a turn that did not
    end or failed, and a message that no turn said."""
    rows = Turn.objects.using(alias).values_list("conversation", flat=True)
    return [one for pk in rows.distinct() for one in _of_conversation(alias, pk)]


def _of_conversation(alias: str, pk: int) -> Iterator[str]:
    messages = Message.objects.using(alias).filter(conversation_id=pk)
    texts = {
        message_id: message_text(json.loads(body))
        for message_id, body in messages.values_list("message_id", "body")
    }
    turns = Turn.objects.using(alias).filter(conversation_id=pk)
    for turn in turns.select_related("conversation").order_by("position"):
        name = f"turn {turn.request_id!r} of {turn.conversation}"
        reply = texts.pop(turn.message_id, None)
        whole = words(int(texts.pop(f"u-{turn.request_id}").split()[0]))
        if turn.status == "completed" and reply != whole:
            yield f"{name} said {reply!r}, not {whole!r}"
        elif turn.status == "aborted" and not whole.startswith(reply or ""):
            yield f"{name} was stopped and said {reply!r}, not the start of {whole!r}"
        elif turn.status not in ("completed", "aborted"):
            yield f"{name} is {turn.status}: {turn.error!r}"
    for message_id in texts:
        yield f"conversation {pk} has the message {message_id!r}, which no turn said"
