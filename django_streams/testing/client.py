"""A client of chat agents, in the test's own process.

It does what the official React hooks do: it probes for a reply that is being
written, accepts it, replays it, and keeps a transcript of its own::

    async with AgentClient(SupportAgent, "room1", user=user) as chat:
        reply = await chat.send("hello")
        assert reply.text == "Hello, how can I help?"

The consumer, the turns and the database are the real ones. No server, no Redis
and no key is needed, and nothing runs on when the last client has closed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .. import ids
from ..chat import AIChatConsumer, agent_urls
from ..chat.protocol import (
    CANCEL,
    CLEAR,
    RESUME_REQUEST,
    RPC,
    STATE,
    STATE_ERROR,
    USE_CHAT_REQUEST,
)
from .answering import Answering
from .errors import CallError, ClientError
from .reply import Frame, Reply, UIMessage


class AgentClient(Answering):
    """One tab that talks to *agent* in the conversation *name*.

    *user* is who is logged in. Without one it is a visitor: clients with the
    same *visitor* share a session, as the tabs of a browser do.

    With *client*, a Django test client, it goes through the project's own
    ``ASGI_APPLICATION``, middleware and routes included, with that client's
    cookies; log in there, and leave *user* and *visitor* alone.

    *query* are the keys of the address, *resume* is the hook's option of that
    name, *timeout* the seconds that it waits for whatever it waits for; then
    :class:`ClientError` says for what, and which frames came.

    Use it as an async context manager, or await it and then await
    :meth:`close`. The last client that closes on an event loop stops the turns
    that still run, and returns when no task of the library is left.
    """

    @classmethod
    def connect(
        cls, agent: type[AIChatConsumer], name: str = "default", **options: Any
    ) -> AgentClient:
        """The same as the class itself, for ``await AgentClient.connect(...)``."""
        return cls(agent, name, **options)

    async def send(
        self, message: str | UIMessage, *, timeout: float | None = None, **options: Any
    ) -> Reply:
        """Say something and wait for the end of the turn, however it ends.

        *options* are those of :meth:`submit`.
        """
        reply = await self.submit(message, **options)
        return await reply.ended(timeout)

    async def submit(
        self,
        message: str | UIMessage,
        *,
        body: Mapping[str, Any] | None = None,
        client_tools: list[Any] | None = None,
        request_id: str | None = None,
    ) -> Reply:
        """Say something, as text or as a UIMessage, and do not wait.

        *body* are the custom keys, ``turn.body``. The reply fills while frames
        come: await its :meth:`~Reply.says` or :meth:`~Reply.ended`.
        """
        if isinstance(message, str):
            parts = [{"type": "text", "text": message}]
            message = {"id": ids.new_id("user-"), "role": "user", "parts": parts}
        self.transcript.append(message)
        return await self._request("submit-message", body, client_tools, request_id)

    async def regenerate(
        self, *, body: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Reply:
        """Ask for another answer to the last message; waits for its end."""
        while self.transcript and self.transcript[-1].get("role") == "assistant":
            self.transcript.pop()
        reply = await self._request("regenerate-message", body, None, None)
        return await reply.ended(timeout)

    async def stop(self, reply: Reply | None = None) -> Reply | None:
        """Press the stop button; waits for the end of what it stops.

        Stops *reply*, or whatever this client sees running; the last of it, None
        where nothing runs.
        """
        replies = [r for r in self.replies.values() if not r.done]
        replies = replies if reply is None else [reply]
        for one in replies:
            await self.send_frame({"type": CANCEL, "id": one.request_id})
        for one in replies:
            await one.ended()
        return replies[-1] if replies else None

    async def clear(self) -> None:
        """Delete the conversation's messages; returns when it is done."""
        running = [reply for reply in self.replies.values() if not reply.done]
        await self.send_frame({"type": CLEAR})
        self._forget_answers()
        self.transcript = []
        for reply in running:
            await reply.ended()
        # Frames are handled in order: what is asked now is answered afterwards.
        self._answer, self._probe = None, ids.new_id("probe-")
        await self.send_frame({"type": RESUME_REQUEST, "probeId": self._probe})
        await self._wait("the answer after clearing", lambda: self._answer)
        self._probe = None
        self.transcript = []

    async def set_state(self, state: Any) -> None:
        """Replace the shared state; returns when it is stored.

        The other clients are told. Raises :class:`CallError` where the agent
        refuses it; the state is then as it was.
        """
        before, self.state = self.state, state
        told = len(self.frames)
        await self.send_frame({"type": STATE, "state": state})
        await self._handled()
        for frame in self.frames[told:]:
            if frame["type"] == STATE_ERROR:
                self.state = before
                raise CallError(f"set_state(): {frame['error']}")

    async def call(self, method: str, *args: Any) -> Any:
        """Call a ``@callable`` method of the agent and return its result.

        For a generator, the list of what it yielded. Raises :class:`CallError`.
        """
        call_id = ids.new_id("call-")
        frame = {"type": RPC, "id": call_id, "method": method, "args": list(args)}
        await self.send_frame(frame)

        def look() -> list[Frame] | None:
            mine = [f for f in self.frames if f["type"] == RPC and f["id"] == call_id]
            over = mine and (not mine[-1]["success"] or mine[-1].get("done", True))
            return mine if over else None

        *items, last = await self._wait(f"the result of {method}()", look)
        if not last["success"]:
            raise CallError(f"{method}(): {last['error']}")
        return [item["result"] for item in items] if items else last["result"]

    async def next_reply(self, timeout: float | None = None) -> Reply:
        """The next reply that this client has not met: of another tab, of code, or
        a continuation that was not waited for."""

        def look() -> Reply | None:
            for request_id, reply in self.replies.items():
                if request_id not in self._met:
                    self._met.add(request_id)
                    return reply
            return None

        return await self._wait("a reply that another client asked for", look, timeout)

    async def messages(self) -> list[UIMessage]:
        """The messages as they are stored, asked for as the hook does: by HTTP."""
        from django.test import AsyncClient, AsyncRequestFactory

        path = f"{self._path}/get-messages"
        if self._client is not None:
            client = AsyncClient()
            client.cookies = self._client.cookies
            response: Any = await client.get(path)
        else:
            who = self._who()

            async def auser() -> Any:
                return who

            request = AsyncRequestFactory().get(path)
            request.user, request.auser = who, auser
            request.session = self._session()
            address = f"agents/{self.agent.agent_name}/{self.name}/get-messages"
            match = agent_urls(self.agent)[0].resolve(address)
            assert match is not None
            response = await match.func(request, *match.args, **match.kwargs)
        if response.status_code != 200:
            raise ClientError(f"GET {path} was answered with {response.status_code}")
        found: list[UIMessage] = json.loads(response.content)
        return found

    async def _request(
        self,
        trigger: str,
        body: Mapping[str, Any] | None,
        client_tools: list[Any] | None,
        request_id: str | None,
    ) -> Reply:
        content: dict[str, Any] = {
            **(body or {}),
            "messages": self.transcript,
            "trigger": trigger,
        }
        if client_tools is not None:
            content["clientTools"] = client_tools
        # A model in a test may use the id of a call again.
        self._given = []
        request_id = request_id or ids.new_id("turn-")
        reply = self._reply(request_id)
        reply.attached = True
        self._met.add(request_id)
        init = {"method": "POST", "body": json.dumps(content)}
        await self.send_frame(
            {"type": USE_CHAT_REQUEST, "id": request_id, "init": init}
        )
        return reply
