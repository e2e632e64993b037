"""Servers that speak like providers, and a turn as far as adapters need one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from django_streams.messages import Accumulator
from django_streams.messages.steps import result_of
from django_streams.tools import ToolSet


class Server:
    """Answers each request with the next of *answers*, which are lists of frames of
    an event stream; behind the last frame it hangs up, unless it *stays*."""

    def __init__(self, *answers: Sequence[str], stays: bool = False) -> None:
        self._answers = list(answers)
        self._stays = stays
        self.requests: list[Any] = []
        self.left = asyncio.Event()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        self.requests.append(json.loads(await reader.readexactly(length)))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Connection: close\r\n\r\n"
        )
        writer.write("".join(self._answers.pop(0)).encode())
        if self._stays:
            await reader.read()
        writer.close()
        await writer.wait_closed()
        self.left.set()


class Asked:
    """A turn whose calls of its own tools are answered as they are said."""

    def __init__(self, *tools: Any, steps: int = 10) -> None:
        self.tools = ToolSet(tools)
        self.client_tools = [{"name": "where", "parameters": {"type": "object"}}]
        self.messages = [{"role": "user", "parts": [{"type": "text", "text": "x"}]}]
        self.max_tool_steps = steps
        self.reply = Accumulator("a1")

    def result(self, call_id: str) -> Any:
        part = self.reply.call(call_id)
        return None if part is None else result_of(part)

    async def answered(self, said: AsyncIterator[Any]) -> list[Any]:
        found = []
        async for item in said:
            found.append(item)
            self.reply.apply(item)
            if isinstance(item, str) or item["type"] != "tool-input-available":
                continue
            if item["toolName"] in self.tools and not item.get("providerExecuted"):
                output = {"of": item["input"]}
                answer = {"type": "tool-output-available", "output": output}
                self.reply.apply(answer | {"toolCallId": item["toolCallId"]})
        return found


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b
