"""One tab of a chat in the test's own process: its socket and its frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote, unquote, urlencode

from .. import ids
from ..access import SESSION_NAME
from ..chat import AIChatConsumer, agent_routes
from ..chat.protocol import RESUME_ACK, RESUME_NONE, RESUME_REQUEST, RESUMING, RPC
from . import agents, tasks
from .errors import ClientError, Refused, closed, report
from .reply import Frame, Reply, UIMessage
from .socket import Socket

T = TypeVar("T")

TIMEOUT = 10.0
"""Seconds for which a client waits for what must come."""

_open: dict[asyncio.AbstractEventLoop, set[Tab]] = {}


def still_open() -> list[Tab]:
    """Clients that were not closed, on whatever event loop."""
    return [tab for tabs in _open.values() for tab in tabs]


async def close_all() -> None:
    """Close the clients of the running loop that a test has left open."""
    for tab in list(_open.get(asyncio.get_running_loop(), ())):
        await tab.close()


def forget_all() -> None:
    """Let go of clients whose loop has ended, and can close nothing any more."""
    _open.clear()


class Tab:
    """What :class:`AgentClient` is below what a person does."""

    def __init__(
        self,
        agent: type[AIChatConsumer],
        name: str = "default",
        *,
        user: Any = None,
        visitor: str = "visitor",
        client: Any = None,
        query: Mapping[str, str] | None = None,
        resume: bool = True,
        timeout: float = TIMEOUT,
    ) -> None:
        if not (isinstance(agent, type) and issubclass(agent, AIChatConsumer)):
            raise TypeError(f"agent is {agent!r}; it must be an AIChatConsumer class")
        ids.check_id(name, "conversation name")
        if "/" in name:
            raise ValueError(
                f"the conversation name {name!r} has a slash: in an address it would "
                "be two path segments, and a name is one"
            )
        if client is not None and user is not None:
            raise TypeError("give a user or a client that is logged in, not both")
        self.agent = agent
        self.name = name
        self.timeout = timeout
        self.frames: list[Frame] = []
        """Everything that was received, over all of its sockets, in order."""
        self.transcript: list[UIMessage] = []
        """The messages as a page would show them, without a running reply."""
        self.replies: dict[str, Reply] = {}
        """Every reply that was seen, by request id, oldest first."""
        self.resumed: Reply | None = None
        """The reply that was being written when it connected last."""
        self.identity: Frame | None = None
        self.state: Any = None
        """The state that the clients of the conversation share."""
        self._user = user
        self._visitor = visitor
        self._client = client
        self._path = f"/agents/{agent.agent_name}/{quote(name, safe='')}"
        self._query = urlencode(dict(query or {}))
        self._resume = resume
        self._socket: Socket | None = None
        self._probe: str | None = None
        self._answer: Frame | None = None
        self._greeted = False
        self._released = 0
        """How often it was let go that waited for a reply."""
        self._returned = 0
        """How many frames until() has been through."""
        self._met: set[str] = set()

    def __repr__(self) -> str:
        return f"<client of {self.agent.agent_name}/{self.name}>"

    def __await__(self) -> Generator[Any, None, Self]:
        return self._enter().__await__()

    async def __aenter__(self) -> Self:
        return await self._enter()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except Exception as failure:
            if error is None:
                raise
            # What the test itself failed by is the news.
            error.add_note(f"{self!r} did not close cleanly either: {failure}")

    # The socket

    async def _enter(self) -> Self:
        if self._socket is not None:
            raise ClientError(f"{self!r} is connected already")
        _open.setdefault(asyncio.get_running_loop(), set()).add(self)
        if self._client is None:
            agents.lend(self.agent)
        try:
            self.resumed = await self._connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def reconnect(self) -> Reply | None:
        """Come back on a new socket, as after a reload or a lost connection.

        The reply that is being written, replayed as far as it is stored and live
        from there; None where nothing is being written. An open socket is closed.
        """
        await self.disconnect()
        self.resumed = await self._connect()
        return self.resumed

    async def disconnect(self, code: int = 1001) -> None:
        """Close the socket and stay in the test: turns go on without it."""
        socket, self._socket = self._socket, None
        for reply in self.replies.values():
            reply.attached = reply.accepting = False
        if socket is not None:
            await socket.close(code)

    async def close(self) -> None:
        """Close the socket for good; again: does nothing.

        The last one on the event loop also ends what still runs. Raises what the
        consumer raised, and :class:`ClientError` for what does not end.
        """
        loop = asyncio.get_running_loop()
        clients = _open.get(loop, set())
        if self not in clients:
            return
        last = clients == {self}
        try:
            if last:
                await self._stop_all()
            await self.disconnect()
        finally:
            clients.discard(self)
            if last:
                _open.pop(loop, None)
                runs = any(not reply.done for reply in self.replies.values())
                patience = 0.0 if runs else tasks.BY_THEMSELVES
                try:
                    await tasks.end(self.timeout, patience=patience)
                finally:
                    agents.take_back()

    async def _stop_all(self) -> None:
        if self._socket is None or not self._socket.open:
            return
        try:
            await self.stop()
        except ClientError:
            return  # tasks.end() is harsher

    async def stop(self, reply: Reply | None = None) -> Reply | None:
        raise NotImplementedError

    async def _connect(self) -> Reply | None:
        self._greeted, self._answer, self._probe = False, None, None
        application, headers, scope = self._application()
        socket = self._socket = Socket(
            application,
            unquote(self._path),
            self._query,
            headers=headers,
            scope=scope,
            take=self._take,
            timeout=self.timeout,
        )
        await socket.connect()
        await self._until_let_in(socket)
        return await self._probed() if self._resume else None

    async def _until_let_in(self, socket: Socket) -> None:
        if self._resume:
            # At once, as the hook does: before any offer can be accepted.
            self._probe = ids.new_id("probe-")
            await self.send_frame({"type": RESUME_REQUEST, "probeId": self._probe})

        def look() -> bool | None:
            return True if self._greeted or socket.code is not None else None

        await socket.wait("the transcript after connecting", look)
        if socket.code is not None:
            what = f"{self!r} was refused with {closed(socket.code)}"
            raise Refused(report(what, socket.frames), socket.code)

    async def _probed(self) -> Reply | None:
        answer = await self._wait(
            "the answer to the resume request", lambda: self._answer
        )
        self._probe = None
        if answer["type"] == RESUME_NONE:
            return None
        reply = self._reply(answer["id"])
        self._met.add(reply.request_id)
        if answer["type"] == RESUMING:
            await reply.caught_up()
        else:
            reply.awaited = True
        return reply

    def _application(
        self,
    ) -> tuple[Any, Sequence[tuple[bytes, bytes]], dict[str, Any]]:
        if self._client is None:
            from channels.routing import URLRouter

            scope = {"user": self._who(), "session": self._session()}
            return URLRouter(agent_routes(self.agent)), (), scope
        from channels.routing import get_default_application

        cookies = "; ".join(f"{n}={m.value}" for n, m in self._client.cookies.items())
        headers = [
            (b"host", b"testserver"),
            (b"origin", b"http://testserver"),
            (b"cookie", cookies.encode()),
        ]
        return get_default_application(), headers, {}

    def _who(self) -> Any:
        from django.contrib.auth.models import AnonymousUser

        return AnonymousUser() if self._user is None else self._user

    def _session(self) -> Any:
        from django.contrib.sessions.backends.signed_cookies import SessionStore

        session = SessionStore()
        if self._user is None:
            session[SESSION_NAME] = self._visitor
        return session

    # Frames

    async def send_frame(self, frame: Mapping[str, Any] | str) -> None:
        """Send a frame as it is; a string goes out as text, whatever it says."""
        text = frame if isinstance(frame, str) else json.dumps(frame)
        await self._connected().send(text)

    async def until(
        self, kind: str, *, timeout: float | None = None, **members: Any
    ) -> Frame:
        """The next frame of type *kind* that has *members*.

        Looks at each frame once: those that came before the last one it
        returned are past.
        """

        def look() -> Frame | None:
            for at in range(self._returned, len(self.frames)):
                frame = self.frames[at]
                if frame.get("type") == kind and frame | members == frame:
                    self._returned = at + 1
                    return frame
            return None

        what = f"a frame {kind!r}" + (f" with {members}" if members else "")
        return await self._wait(what, look, timeout)

    async def closed(self, timeout: float | None = None) -> int:
        """Wait until the server closes the socket; its code."""
        socket = self._connected()
        return await socket.wait(
            "the server to close the socket", lambda: socket.code, timeout
        )

    async def _handled(self) -> None:
        """Wait until the agent has handled what was sent so far."""
        call_id = ids.new_id("handled-")
        await self.send_frame({"type": RPC, "id": call_id, "method": "", "args": []})

        def look() -> bool | None:
            mine = (f for f in self.frames if f.get("type") == RPC)
            return any(f["id"] == call_id for f in mine) or None

        await self._wait("the agent to handle what was sent", look)

    def _connected(self) -> Socket:
        if self._socket is None:
            raise ClientError(f"{self!r} is not connected; reconnect() first")
        return self._socket

    async def _wait(
        self, what: str, look: Callable[[], T | None], timeout: float | None = None
    ) -> T:
        if (result := look()) is not None:
            return result
        return await self._connected().wait(what, look, timeout)

    def _take(self, frame: Frame) -> None:
        self.frames.append(frame)
        match frame.get("type"):
            case "cf_agent_identity":
                self.identity = frame
            case "cf_agent_state":
                self.state = frame["state"]
            case "cf_agent_chat_messages":
                self.transcript = list(frame["messages"])
                self._greeted = self._greeted or bool(frame.get("connect"))
            case "cf_agent_chat_clear":
                self.transcript = []
            case "cf_agent_message_updated":
                new = frame["message"]
                self.transcript = [
                    new if known.get("id") == new["id"] else known
                    for known in self.transcript
                ]
            case "cf_agent_use_chat_response":
                self._respond(frame)
            case "cf_agent_stream_resuming":
                self._offered(frame)
            case "cf_agent_stream_pending" | "cf_agent_stream_resume_none":
                if frame.get("probeId") == self._probe is not None:
                    self._answer = frame
                elif frame["type"] == RESUME_NONE and "probeId" not in frame:
                    self._let_go()

    def _offered(self, frame: Frame) -> None:
        if not self._resume:
            return
        if self._probe is not None:
            # What was offered before the probe was asked is offered again by it.
            if frame.get("probeId") != self._probe:
                return
            self._answer = frame
        reply = self._reply(frame["id"])
        if reply.attached and not reply.done and "probeId" not in frame:
            return
        reply.attached = reply.accepting = True
        self._connected().post(json.dumps({"type": RESUME_ACK, "id": frame["id"]}))

    def _let_go(self) -> None:
        """Nothing will come of what this client waits for."""
        self._released += 1
        for reply in self.replies.values():
            if reply.awaited and not (reply.frames or reply.done):
                reply.outcome = "completed"

    def _respond(self, frame: Frame) -> None:
        reply = self._reply(frame["id"])
        reply.take(frame)
        message = reply.message
        if reply.done and message is not None:
            ids_known = [known.get("id") for known in self.transcript]
            if message["id"] in ids_known:
                self.transcript[ids_known.index(message["id"])] = message
            else:
                self.transcript.append(message)

    def _reply(self, request_id: str) -> Reply:
        reply = self.replies.get(request_id)
        if reply is None:
            reply = Reply(request_id, self._wait, base=self._last_answer)
            self.replies[request_id] = reply
        return reply

    def _last_answer(self) -> UIMessage | None:
        for message in reversed(self.transcript):
            if message.get("role") == "assistant":
                return message
        return None
