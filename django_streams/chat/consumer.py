"""The WebSocket door: frames in and out of one :class:`Connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from channels.consumer import AsyncConsumer

from ..access import Subject
from .agent import Agent
from .connection import Connection

CLOSING: Final = 5.0
"""Seconds that a close may take."""

GOING: Final = 1.0
"""Seconds after a close that was not taken in which we hear that the client had
gone, if that is why."""


class Unclosed(Exception):
    """The server did not take the close of a socket: it has to drop it."""


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
        serving = asyncio.timeout(None)
        unclosed = Unclosed("a socket did not take its close")

        async def refuse(code: int) -> None:
            try:
                async with asyncio.timeout(CLOSING):
                    await send({"type": "websocket.close", "code": code})
            except Exception as error:
                unclosed.__cause__ = error
                serving.reschedule(asyncio.get_running_loop().time() + GOING)

        connection = Connection(self, Subject.of(scope), name, self.send_text, refuse)
        try:
            async with serving:
                await self._serve(connection, receive)
        except TimeoutError:
            if not serving.expired():
                raise
            # To return would leave the socket open on Daphne.
            raise unclosed from unclosed.__cause__
        finally:
            await connection.close()

    async def _serve(
        self, connection: Connection, receive: Callable[[], Awaitable[Any]]
    ) -> None:
        while True:
            message = await receive()
            match message["type"]:
                case "websocket.connect":
                    # Before anything is asked: a refusal is a close code, for a
                    # rejected handshake makes clients retry for ever.
                    await self.base_send({"type": "websocket.accept"})
                    connection.start()
                case "websocket.receive":
                    await connection.receive(message.get("text"))
                case "websocket.disconnect":
                    await connection.finish()
                    return

    def send_text(self, text: str) -> Awaitable[None]:
        # No coroutine of its own: it is awaited for each frame of each socket.
        return self.base_send({"type": "websocket.send", "text": text})
