"""Handles on conversations, through either door."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import connections

from django_streams.chat import AIChatConsumer
from django_streams.chat.handle import ConversationHandle
from django_streams.turns import door, queue
from django_streams.turns.runner import get_runner

from .chatting import (
    TIMEOUT,
    Script,
    ref_of,
)

OWNER = "a:v1"


class Doors:
    """Calls ``foo`` on a thread, or awaits ``afoo``: the same to a test."""

    def __init__(self, handle: ConversationHandle, *, blocking: bool) -> None:
        self._handle = handle
        self._blocking = blocking

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        # The test's loop serves the agent, as a server of another process would.
        get_runner()
        if not self._blocking:
            twin: Callable[..., Awaitable[Any]] = getattr(self._handle, "a" + name)
            return twin

        async def call(*args: Any, **kwargs: Any) -> Any:
            if name in ("save_messages", "continue_last_turn", "wait_until_idle"):
                # A thread that waits for ever cannot be got rid of.
                kwargs.setdefault("timeout", TIMEOUT)

            def work() -> Any:
                try:
                    return getattr(self._handle, name)(*args, **kwargs)
                finally:
                    connections.close_all()

            return await asyncio.to_thread(work)

        return call


def answering(*words: str) -> tuple[Script, type[AIChatConsumer]]:
    script = Script()
    for word in words:
        script.say(word)
        script.end()
    return script, script.agent()


async def eventually_queued(agent: Any, count: int) -> None:
    def look() -> bool:
        rows = queue.turns().filter(conversation__key=ref_of(agent, "room").key)
        return rows.filter(status="queued").count() == count

    async with asyncio.timeout(10):
        while not await door.run(look):
            await asyncio.sleep(0.01)
