"""The WebSocket door: frames in and out of one :class:`Connection`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from channels.consumer import AsyncConsumer

from ..access import Subject
from .agent import Agent
from .connection import Connection


class AIChatConsumer(Agent, AsyncConsumer):
    """A chat agent. Subclass it and write ``on_chat_message``.

    An instance serves either one socket or one turn, never both: the turn goes
    on when every socket has gone. It receives nothing through the channel layer
    (the connection follows the database), so none is asked for a channel.
    """

    async def __call__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.scope = scope
        self.base_send: Callable[[Any], Awaitable[None]] = send
        name = str(scope.get("url_route", {}).get("kwargs", {}).get("name", ""))
        connection = Connection(
            self, Subject.of(scope), name, self.send_text, self.refuse
        )
        try:
            while True:
                message = await receive()
                match message["type"]:
                    case "websocket.connect":
                        # Before anything is asked: a refusal is a close code,
                        # for a rejected handshake makes clients retry for ever.
                        await send({"type": "websocket.accept"})
                        connection.start()
                    case "websocket.receive":
                        await connection.receive(message.get("text"))
                    case "websocket.disconnect":
                        return
        finally:
            await connection.close()

    async def send_text(self, text: str) -> None:
        await self.base_send({"type": "websocket.send", "text": text})

    async def refuse(self, code: int) -> None:
        await self.base_send({"type": "websocket.close", "code": code})
