"""Agents behind real servers: a site for tests that need HTTP or processes.

``Paced`` says as many numbered words as it was asked for, ``Secret`` wants a
login, ``Shared`` is one room for everybody who is admitted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from django.urls import include, path

from django_streams.chat import AIChatConsumer, ChatView, agent_urls
from django_streams.turns.records import ConversationRef
from django_streams.turns.turn import Turn


def words(count: int) -> str:
    """What ``Paced`` says when it is asked for *count* words."""
    return "".join(f"w{at} " for at in range(count))


class Paced(AIChatConsumer):
    """Asked "30 0.01", says 30 words, one each 10 ms."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        count, pause = turn.text.split()
        for at in range(int(count)):
            yield f"w{at} "
            await asyncio.sleep(float(pause))


class Secret(Paced):
    allow_anonymous = False


class Shared(Paced):
    allow_anonymous = False

    def conversation_owner(self, user: Any, name: str) -> str:
        return ""

    def authorize(self, user: Any, conversation: ConversationRef) -> bool:
        return bool(user.username != "banned")


AGENTS = (Paced, Secret, Shared)

urlpatterns = [
    path("", include(agent_urls(*AGENTS))),
    path("chat/<str:room>/", ChatView.as_view(agent=Paced)),
    path("chat/", ChatView.as_view(agent=Paced)),
    path("secret/", ChatView.as_view(agent=Secret)),
]
