"""A chat in this process: agents made on the spot and tabs without a server.

A :class:`Tab` runs the consumer as a server would and speaks frames. The turns
run on the test's own loop, so handlers may wait for the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from channels.routing import URLRouter

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.turns import door, status, transcript
from django_streams.turns.records import ConversationRef

TIMEOUT = 10.0
"""Seconds a test waits for what must come."""

RESPONSE = "cf_agent_use_chat_response"
MESSAGES = "cf_agent_chat_messages"
RESUMING = "cf_agent_stream_resuming"
PENDING = "cf_agent_stream_pending"
NONE = "cf_agent_stream_resume_none"

Frame = dict[str, Any]
AgentClass = type[AIChatConsumer]


def make_agent(handler: Callable[..., Any], **members: Any) -> AgentClass:
    """An agent of its own name, open to everybody, that answers by *handler*."""
    name = f"agent-{secrets.token_hex(4)}"
    body = {"agent_name": name, "allow_anonymous": True, "on_chat_message": handler}
    return type("TestAgent", (AIChatConsumer,), body | members)


class Script:
    """A handler whose every step the test decides."""

    def __init__(self) -> None:
        self._items: asyncio.Queue[Any] = asyncio.Queue()
        self.turns: list[Any] = []
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    def say(self, *items: Any) -> None:
        for item in items:
            self._items.put_nowait(item)

    def end(self) -> None:
        self.say(None)

    def agent(self, **members: Any) -> AgentClass:
        script = self

        async def on_chat_message(self: Any, turn: Any) -> AsyncIterator[Any]:
            script.turns.append(turn)
            script.begun.set()
            try:
                while (item := await script._items.get()) is not None:
                    if isinstance(item, Exception):
                        raise item
                    yield item
            finally:
                script.ended.set()

        return make_agent(on_chat_message, **members)


class Session(dict[str, Any]):
    """A visitor's session without a middleware."""

    session_key = None


def visitor(name: str = "v1") -> Session:
    return Session(django_streams_owner=name)


def ref_of(agent: AgentClass, room: str, owner: str = "a:v1") -> ConversationRef:
    return ConversationRef(agent.agent_name, room, owner)


def user_message(text: str, message_id: str) -> dict[str, Any]:
    parts = [{"type": "text", "text": text}]
    return {"id": message_id, "role": "user", "parts": parts}


class Tab:
    """One open socket of a visitor."""

    def __init__(
        self,
        agent: AgentClass,
        room: str = "room",
        *,
        session: Session | None = None,
        user: Any = None,
        path: str | None = None,
    ) -> None:
        self.agent = agent
        path = path or f"/agents/{agent.agent_name}/{room}"
        self._scope = {
            "type": "websocket",
            "path": path,
            "user": user,
            "session": visitor() if session is None else session,
        }
        self._app = URLRouter(agent_routes(agent))
        self._in: asyncio.Queue[Any] = asyncio.Queue()
        self._out: asyncio.Queue[Any] = asyncio.Queue()
        self.reading = asyncio.Event()
        """Cleared: the client takes nothing, so sends block."""
        self.reading.set()
        self.sent = 0
        self.kept: list[Frame] = []

    async def __aenter__(self) -> Self:
        await self._in.put({"type": "websocket.connect"})
        self._task = asyncio.create_task(
            self._app(self._scope, self._in.get, self._take)  # type: ignore[arg-type]
        )
        async with asyncio.timeout(TIMEOUT):
            assert (await self._out.get())["type"] == "websocket.accept"
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()

    async def leave(self) -> None:
        """Close the socket; returns when the server has let go of it."""
        await self._in.put({"type": "websocket.disconnect", "code": 1001})
        async with asyncio.timeout(TIMEOUT):
            await self._task

    async def _take(self, message: Any) -> None:
        await self.reading.wait()
        self.sent += 1
        await self._out.put(message)

    async def send(self, frame: Any) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        await self._in.put({"type": "websocket.receive", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        await self._in.put({"type": "websocket.receive", "bytes": data})

    async def next(self, timeout: float = TIMEOUT) -> Frame:
        """The next frame of any kind."""
        async with asyncio.timeout(timeout):
            message = await self._out.get()
        if message["type"] == "websocket.close":
            return {"type": "close", "code": message["code"]}
        frame: Frame = json.loads(message["text"])
        self.kept.append(frame)
        return frame

    async def until(self, kind: str, **members: Any) -> Frame:
        """The next frame of *kind* that has *members*; earlier ones are kept."""
        async with asyncio.timeout(TIMEOUT):
            while True:
                frame = await self.next()
                if frame["type"] == kind and frame | members == frame:
                    return frame

    async def told(self, kind: str, **members: Any) -> Frame:
        """As :meth:`until`, of the frames that came already, too."""
        for frame in self.kept:
            if frame["type"] == kind and frame | members == frame:
                return frame
        return await self.until(kind, **members)

    async def done(self, request_id: str = "q1") -> list[Frame]:
        """All frames up to the terminal one of a request."""
        start = len(self.kept)
        while True:
            frame = await self.next()
            mine = frame["type"] == RESPONSE and frame["id"] == request_id
            if mine and frame["done"]:
                return self.kept[start:]

    async def silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        with contextlib.suppress(TimeoutError):
            await self.next(seconds)
            return False
        return True

    async def ready(self) -> list[Frame]:
        """The frames of the greeting: identity and transcript."""
        frames = [await self.next(), await self.next()]
        assert [f["type"] for f in frames] == ["cf_agent_identity", MESSAGES]
        assert frames[1]["connect"] is True
        return frames

    async def ask(
        self, text: str, request_id: str = "q1", *before: Any, **body: Any
    ) -> None:
        """Submit a message; *before* are the messages the tab already has."""
        messages = [*before, user_message(text, f"u-{request_id}")]
        await self.submit(messages, request_id, **body)

    async def submit(self, messages: list[Any], request_id: str, **body: Any) -> None:
        content = {"messages": messages, "trigger": "submit-message"} | body
        await self.send(
            {
                "type": "cf_agent_use_chat_request",
                "id": request_id,
                "init": {"method": "POST", "body": json.dumps(content)},
            }
        )

    async def probe(self, probe_id: str = "p1") -> Frame:
        """Send a resume request; the answer to it."""
        await self.send({"type": "cf_agent_stream_resume_request", "probeId": probe_id})
        while True:
            frame = await self.next()
            if frame.get("probeId") == probe_id:
                return frame

    async def ack(self, request_id: str = "q1") -> None:
        await self.send({"type": "cf_agent_stream_resume_ack", "id": request_id})

    async def cancel(self, request_id: str = "q1") -> None:
        await self.send({"type": "cf_agent_chat_request_cancel", "id": request_id})


def responses(frames: list[Frame], request_id: str = "q1") -> list[Frame]:
    return [f for f in frames if f["type"] == RESPONSE and f["id"] == request_id]


def chunks(frames: list[Frame], request_id: str = "q1") -> list[Any]:
    """The chunks in the frames of a request, in order."""
    return [
        json.loads(f["body"])
        for f in responses(frames, request_id)
        if f["body"] and not f.get("error") and not f["done"]
    ]


def text_of(frames: list[Frame], request_id: str = "q1") -> str:
    return "".join(
        chunk["delta"]
        for chunk in chunks(frames, request_id)
        if chunk["type"] == "text-delta"
    )


def message_text(message: dict[str, Any]) -> str:
    return "".join(p["text"] for p in message["parts"] if p["type"] == "text")


async def stored(agent: Any, room: str = "room", owner: str = "a:v1") -> list[Any]:
    texts = await door.run(transcript.texts, ref_of(agent, room, owner))
    return [json.loads(text) for text in texts]


async def turn_of(agent: Any, request_id: str = "q1") -> Any:
    return await door.run(status.find_turn, ref_of(agent, "room"), request_id)


async def eventually_stored(agent: Any, count: int) -> list[Any]:
    while len(messages := await stored(agent)) < count:
        await asyncio.sleep(0.01)
    return messages


async def eventually(check: Callable[[], Any], timeout: float = TIMEOUT) -> Any:
    """Wait until *check* is true; what it then returns."""
    end = time.monotonic() + timeout
    while not (result := check()):
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.01)
    return result


async def quiet() -> None:
    """Return when no task of the library is left on this loop."""
    me = asyncio.current_task()
    async with asyncio.timeout(TIMEOUT):
        while others := [t for t in asyncio.all_tasks() if t is not me]:
            await asyncio.wait(others, timeout=0.05)
