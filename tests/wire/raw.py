"""A browser's part without a browser: a cookie, a socket, frames."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from types import TracebackType
from typing import Any, Protocol, Self

from websockets.asyncio.client import ClientConnection, connect

from tests.integration.chatting import RESPONSE, Frame, user_message

TIMEOUT = 15.0


class Served(Protocol):
    """A server, or several behind one address."""

    @property
    def url(self) -> str: ...


class Socketed(Served, Protocol):
    """One that takes sockets there, too."""

    @property
    def ws_url(self) -> str: ...


def visit(server: Served, agent: str = "paced", room: str = "room") -> str:
    """Open the chat as a new visitor; the session's cookie."""
    with urllib.request.urlopen(_messages(server, agent, room)) as response:
        return str(response.headers["Set-Cookie"]).partition(";")[0]


def stored(
    server: Served, cookie: str, room: str = "room", *, agent: str = "paced"
) -> list[Any]:
    """The transcript that a reload would show."""
    request = urllib.request.Request(
        _messages(server, agent, room), headers={"Cookie": cookie}
    )
    with urllib.request.urlopen(request) as response:
        messages: list[Any] = json.load(response)
        return messages


def _messages(server: Served, agent: str, room: str) -> str:
    return f"{server.url}/agents/{agent}/{room}/get-messages"


class RawTab:
    """One socket to a live server."""

    def __init__(
        self,
        server: Socketed,
        cookie: str,
        *,
        agent: str = "paced",
        room: str = "room",
    ) -> None:
        self._connect = connect(
            f"{server.ws_url}/agents/{agent}/{room}?_pk=raw",
            additional_headers={"Cookie": cookie, "Origin": server.url},
            max_size=None,
            close_timeout=2,
        )
        self.kept: list[Frame] = []
        self.times: list[float] = []

    async def __aenter__(self) -> Self:
        self.socket: ClientConnection = await self._connect.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._connect.__aexit__(kind, error, trace)

    def cut(self) -> None:
        """Lose the network: no closing handshake."""
        self.socket.transport.abort()

    async def send(self, frame: Any) -> None:
        await self.socket.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def next(self) -> Frame:
        async with asyncio.timeout(TIMEOUT):
            frame: Frame = json.loads(await self.socket.recv())
        self.kept.append(frame)
        self.times.append(time.monotonic())
        return frame

    async def until(self, kind: str, **members: Any) -> Frame:
        while True:
            frame = await self.next()
            if frame["type"] == kind and frame | members == frame:
                return frame

    async def done(self, request_id: str = "q1") -> list[Frame]:
        """All frames up to the terminal one."""
        start = len(self.kept)
        await self.until(RESPONSE, id=request_id, done=True)
        return self.kept[start:]

    async def ask(self, text: str, request_id: str = "q1") -> None:
        body = {
            "messages": [user_message(text, f"u-{request_id}")],
            "trigger": "submit-message",
        }
        init = {"method": "POST", "body": json.dumps(body)}
        await self.send(
            {"type": "cf_agent_use_chat_request", "id": request_id, "init": init}
        )

    async def resume(self, request_id: str = "q1") -> None:
        """Wait for the offer of a reply and accept it."""
        await self.until("cf_agent_stream_resuming", id=request_id)
        await self.send({"type": "cf_agent_stream_resume_ack", "id": request_id})

    async def cancel(self, request_id: str = "q1") -> None:
        await self.send({"type": "cf_agent_chat_request_cancel", "id": request_id})
