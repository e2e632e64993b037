"""Clients that come back: whatever ends a connection, they open another."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from websockets.exceptions import WebSocketException

from tests.integration.chatting import MESSAGES, NONE, RESPONSE, RESUMING, chunks
from tests.wire.raw import RawTab

PAUSE = 0.2
"""Longest pause in seconds before another attempt."""


class Address(Protocol):
    """Where a server is: a live server, or a balancer before some."""

    @property
    def url(self) -> str: ...
    @property
    def ws_url(self) -> str: ...


@dataclass
class Client:
    """Asks one question and does not rest until its reply has ended.

    *servers* gives those that may be tried now; each attempt takes any of them.
    """

    servers: Callable[[], Sequence[Address]]
    cookie: str
    agent: str
    room: str
    question: str
    request_id: str = "q1"
    connections: int = 0
    shown: str | None = None
    """The text on the screen at the end; None if it ended while nobody looked."""
    terminal: dict[str, Any] | None = None
    """The frame that ended the reply."""

    async def run(self) -> None:
        while True:
            try:
                if await self._connect():
                    return
            except (OSError, WebSocketException, TimeoutError):
                pass
            await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311

    async def _connect(self) -> bool:
        """One connection; True when there is nothing more to come."""
        server: Any = random.choice(self.servers())  # noqa: S311
        tab = RawTab(server, self.cookie, agent=self.agent, room=self.room)
        async with tab:
            self.connections += 1
            transcript = await tab.until(MESSAGES, connect=True)
            stored = [message["id"] for message in transcript["messages"]]
            if f"u-{self.request_id}" not in stored:
                await tab.ask(self.question, self.request_id)
            else:
                await tab.send(
                    {"type": "cf_agent_stream_resume_request", "probeId": "again"}
                )
            return await self._follow(tab)

    async def _follow(self, tab: RawTab) -> bool:
        while True:
            frame = await tab.next()
            if frame["type"] == NONE:
                return True
            if frame["type"] == RESUMING and frame["id"] == self.request_id:
                ack = {"type": "cf_agent_stream_resume_ack", "id": self.request_id}
                await tab.send(ack)
            mine = frame["type"] == RESPONSE and frame["id"] == self.request_id
            if mine and frame["done"] and frame.get("outcome") != "recovering":
                self.terminal = frame
                # No text: it had been answered when it was asked once more.
                self.shown = screen(tab.kept, self.request_id) or None
                return True


def screen(frames: Sequence[dict[str, Any]], request_id: str) -> str:
    """The text that a client shows: a replay begins the message anew."""
    text = ""
    for chunk in chunks(list(frames), request_id):
        if chunk["type"] == "start":
            text = ""
        elif chunk["type"] == "text-delta":
            text += chunk["delta"]
    return text
