"""Agents behind real servers: a site for tests that need HTTP or processes.

``Paced`` says as many numbered words as it was asked for, ``Fragile`` too unless
it is interrupted. ``Secret`` wants a login, ``Shared`` is one room for everybody
who is admitted, ``Broken`` cannot tell who is, ``Watched`` minds whether somebody
watches, ``Quick`` says again what it is told, ``Careful`` asks for an approval.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from django.urls import include, path

from django_streams.chat import AIChatConsumer, CancelAfter, ChatView, agent_urls
from django_streams.turns.records import ConversationRef
from django_streams.turns.turn import Turn


def words(count: int) -> str:
    """What ``Paced`` says when it is asked for *count* words."""
    return "".join(f"w{at} " for at in range(count))


def text_of(message: dict[str, Any]) -> str:
    return "".join(p["text"] for p in message["parts"] if p["type"] == "text")


class Paced(AIChatConsumer):
    """Asked "30 0.01", says 30 words, one each 10 ms; goes on where an
    interrupted attempt ended."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        count, pause = turn.text.split()
        said = "" if turn.partial is None else text_of(turn.partial)
        for at in range(said.count(" "), int(count)):
            yield f"w{at} "
            await asyncio.sleep(float(pause))


class Fragile(Paced):
    on_interrupted = "fail"


class Secret(Paced):
    allow_anonymous = False


class Shared(Paced):
    allow_anonymous = False

    def conversation_owner(self, user: Any, name: str) -> str:
        return ""

    def authorize(self, user: Any, conversation: ConversationRef) -> bool:
        return bool(user.username != "banned")


class Broken(Paced):
    def authorize(self, user: Any, conversation: ConversationRef) -> bool:
        raise LookupError("the table of members is gone")


class Watched(Paced):
    """Stops what nobody has watched for a second and a half."""

    when_unwatched = CancelAfter(1.5)


class Quick(AIChatConsumer):
    """Says again what it is told."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> str:
        return f"re {turn.text}"


class Careful(AIChatConsumer):
    """Makes a call that has to be approved."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[Any]:
        if turn.continuation:
            yield "done"
            return
        call: dict[str, Any] = {"toolCallId": "c1", "toolName": "erase"}
        yield {"type": "tool-input-available", "input": {}} | call
        yield {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}


AGENTS = (Paced, Fragile, Secret, Shared, Broken, Watched, Quick, Careful)

urlpatterns = [
    path("", include(agent_urls(*AGENTS))),
    path("chat/<str:room>/", ChatView.as_view(agent=Paced)),
    path("chat/", ChatView.as_view(agent=Paced)),
    path("secret/", ChatView.as_view(agent=Secret)),
]
