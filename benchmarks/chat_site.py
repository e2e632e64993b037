"""The measured chat: an agent that says what it is asked for, at a pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

http = get_asgi_application()

from django_streams.chat import AIChatConsumer, agent_routes  # noqa: E402
from django_streams.turns.records import ConversationRef  # noqa: E402
from django_streams.turns.turn import Turn  # noqa: E402

from .payload import said  # noqa: E402


class Paced(AIChatConsumer):
    """One room for all who come, without a login."""

    allow_anonymous = True

    def conversation_owner(self, user: Any, name: str) -> str | None:
        return ""

    def authorize(self, user: Any, conversation: ConversationRef) -> bool | None:
        return True

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        """Say ``at_once`` words, and after ``pause`` seconds ``events`` more, one
        each ``interval`` seconds; then be silent for ``silence`` seconds."""
        wanted = turn.body or {}
        for number in range(wanted.get("at_once", 0)):
            yield said(time.monotonic(), number)
        await asyncio.sleep(wanted.get("pause", 0))
        for number in range(wanted["events"]):
            await asyncio.sleep(wanted["interval"])
            yield said(time.monotonic(), number)
        await asyncio.sleep(wanted.get("silence", 0))


application = ProtocolTypeRouter(
    {"http": http, "websocket": URLRouter(agent_routes(Paced))}
)
