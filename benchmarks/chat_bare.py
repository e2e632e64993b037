"""The floor of the chat: a Channels consumer that sends the same frames.

No database, no layer, no turn: the frames come from memory, and each consumer
waits for the next one on the loop that makes it.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from channels.generic.websocket import AsyncWebsocketConsumer
from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

from django_streams import codec
from django_streams.chat.protocol import Response

from .payload import said

_waiting: set[asyncio.Future[str]] = set()
_tasks: set[asyncio.Task[None]] = set()


class Bare(AsyncWebsocketConsumer):
    """Says what a client asks for to all clients."""

    async def connect(self) -> None:
        await self.accept()
        self._task = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        await self.send(text_data="ready")
        while True:
            news: asyncio.Future[str] = loop.create_future()
            _waiting.add(news)
            try:
                frame = await news
            finally:
                _waiting.discard(news)
            await self.send(text_data=frame)

    async def receive(self, text_data: Any = None, bytes_data: Any = None) -> None:
        task = asyncio.create_task(_broadcast(**json.loads(text_data)))
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def disconnect(self, code: int) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


async def _broadcast(events: int, interval: float, pause: float) -> None:
    response = Response("request")
    await asyncio.sleep(pause)
    for number in range(events):
        await asyncio.sleep(interval)
        delta = said(time.monotonic(), number)
        chunk = {"type": "text-delta", "id": "request", "delta": delta}
        frame = response.chunk(number, codec.encode(chunk))
        for news in _waiting:
            # Cancelled, but its task has not run since: a client just left.
            if not news.done():
                news.set_result(frame)
        _waiting.clear()


application = ProtocolTypeRouter(
    {"http": get_asgi_application(), "websocket": Bare.as_asgi()}
)
