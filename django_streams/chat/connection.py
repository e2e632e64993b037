"""One client of one conversation: what it sends, sees and is told, in order.

A single task, the pump, handles the client's frames and the conversation's
events one after the other and decides what the client is sent; chunks are shown
by the follower's task. Nothing is shared with other connections but the
database: the event log and the streams say what there is to show.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from .. import conf
from ..access import Subject, off_loop
from ..exceptions import StreamSerializationError
from ..failures import public_reason
from ..turns import clearing, door, ends, queue, recovery, status, transcript
from ..turns.records import ConversationRef, Event, EventKind, Snapshot
from ..turns.replay import turn_streams
from ..turns.runner import get_runner
from ..turns.watch import Subscription, get_watch
from . import protocol
from .doors import FORBIDDEN, Admission, Refused, admit
from .follower import Follower
from .handshake import (
    Action,
    Drain,
    Follow,
    Handshake,
    Replay,
    Reply,
    Send,
    SendTranscript,
    State,
    Unfollow,
)

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("django_streams.chat")

INBOX = 64
"""Frames that wait to be handled; then the client's next one is not read."""

LARGE = 65_536
"""Frames of so many characters are parsed in a thread: 1 MiB takes 25 ms, in
which no other connection of the loop would be served."""

NOT_ALLOWED = "Not allowed."
TRY_AGAIN = 1011
"""Close code of a failure on our side: the client connects again."""


class Gone(Exception):
    """The socket takes no more frames."""


class Connection:
    """Serves a socket from :meth:`start` to :meth:`close`.

    *send* sends one text frame, *refuse* closes the socket with a code.
    """

    def __init__(
        self,
        agent: Agent,
        subject: Subject,
        name: str,
        send: Callable[[str], Awaitable[None]],
        refuse: Callable[[int], Awaitable[None]],
    ) -> None:
        self._agent = agent
        self._subject = subject
        self._name = name
        self._send_text = send
        self._refuse = refuse
        self._id = secrets.token_hex(8)
        """Names this connection to itself in the event log."""
        self._order = asyncio.Lock()
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._inbox: deque[str | None] = deque()
        self._todo: deque[Action] = deque()
        """What events call for and is not done; kept until it is."""
        self._handshake = Handshake(resume=agent.resume)
        self._follower = Follower(
            turn_streams(door.alias()), self._send, self._news.set
        )
        self._position = 0
        self._lapsed = False
        self._admission: Admission | None = None
        self._following: Subscription | None = None
        self._pump: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve; returns at once."""
        self._pump = asyncio.create_task(self._serve())

    async def receive(self, text: str | None) -> None:
        """Take a frame; waits while too many are unhandled."""
        while len(self._inbox) >= INBOX and self._pump and not self._pump.done():
            self._room.clear()
            await self._room.wait()
        self._inbox.append(text)
        self._news.set()

    async def close(self) -> None:
        """Stop serving; returns when no task of this connection is left."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        await self._follower.stop()

    # The pump

    async def _serve(self) -> None:
        try:
            await self._enter()
            recheck = asyncio.get_running_loop().time() + conf.get().ACCESS_RECHECK
            while True:
                self._news.clear()
                try:
                    await self._step()
                except (Gone, Refused):
                    raise
                except Exception:
                    logger.exception("serving %s goes on", self._ref)
                    await asyncio.sleep(conf.get().POLL_MAX)
                    continue
                try:
                    async with asyncio.timeout_at(recheck):
                        await self._news.wait()
                except TimeoutError:
                    recheck += conf.get().ACCESS_RECHECK
                    await self._check_again()
        except Gone:
            pass
        except Refused as refused:
            await self._end(refused.code)
        except Exception:
            logger.exception("a connection to %s failed", self._agent.agent_name)
            await self._end(TRY_AGAIN)
        finally:
            if self._following is not None:
                self._following.close()
            self._inbox.clear()
            self._room.set()

    async def _end(self, code: int) -> None:
        await self._follower.stop()
        with contextlib.suppress(Exception):
            await self._refuse(code)

    async def _enter(self) -> None:
        """Admit the client and tell it where things stand."""
        self._admission = await admit(self._agent, self._subject, self._name)
        self._following = get_watch().follow(
            self._ref, self._news.set, self._note_lapsed
        )
        await self._send(protocol.identity(self._ref.agent, self._ref.name))
        await self._tell_all()

    async def _tell_all(self) -> None:
        """The transcript and, if a turn is on, the offer of its reply."""
        seen = await self._snapshot()
        await self._send(await self._transcript(connect=True))
        await self._do(self._handshake.connected(seen))
        # Last: if the database failed on the way, all of it is done again.
        self._position = seen.events
        if seen.queued is not None:
            get_runner().kick(self._ref)

    async def _check_again(self) -> None:
        """Refuse a client that would not be admitted now."""
        fresh = await off_loop(self._subject.fresh)
        admission = await admit(self._agent, fresh, self._name)
        if admission.ref != self._ref:
            raise Refused(FORBIDDEN)
        self._admission = admission

    async def _step(self) -> None:
        """Handle all that has come; ends when only news can bring more."""
        while True:
            while self._inbox:
                text = self._inbox.popleft()
                self._room.set()
                await self._contained(await self._parse(text))
            if self._lapsed:
                self._lapsed = False
                await self._sweep()
            if not await self._work_off() or not await self._next_event():
                return

    async def _parse(self, text: str | None) -> protocol.Frame:
        if text is None or len(text) < LARGE:
            return protocol.parse(text)
        return await asyncio.to_thread(protocol.parse, text)

    async def _work_off(self) -> bool:
        """Do what events called for; False when it must wait for the follower."""
        while self._todo:
            action = self._todo[0]
            if isinstance(action, Drain) and self._follower.busy:
                return False
            await self._do([action])
            # Only now: what a failing database stopped is done again.
            self._todo.popleft()
        return True

    async def _next_event(self) -> bool:
        """Take one event; False when there is none."""
        assert self._following is not None
        events = await self._following.after(self._position)
        if not events:
            return False
        event = events[0]
        if event.seq > self._position + 1:
            # What lay between was trimmed.
            await self._follower.stop()
            await self._tell_all()
            return True
        actions = await self._event(event)
        self._position = event.seq
        self._todo.extend(actions)
        return True

    async def _event(self, event: Event) -> Sequence[Action]:
        mine = event.body.get("connection") == self._id
        match event.kind:
            case EventKind.SUBMITTED | EventKind.MESSAGES:
                return [] if mine else [SendTranscript()]
            case EventKind.STARTED:
                return self._handshake.started(Reply.from_event(event.body))
            case EventKind.ENDED:
                # The process that ran this turn may be gone before the next one.
                get_runner().kick(self._ref)
                waiting = False
                if self._handshake.state is State.PARKED:
                    waiting = (await self._snapshot()).pending is not None
                return self._handshake.ended(event.body, waiting=waiting)
            case EventKind.CLEARED:
                return self._handshake.cleared(mine=mine)
            case EventKind.CANCEL:
                return []

    # Frames

    async def _contained(self, frame: protocol.Frame) -> None:
        """Handle a frame; what goes wrong with it is not the socket's end."""
        try:
            await self._frame(frame)
        except (Gone, Refused):
            raise
        except StreamSerializationError as error:
            # What the client sent cannot be kept: its fault, and no secret.
            reason = str(error)
        except Exception as error:
            reason = public_reason(error, f"a {type(frame).__name__} frame")
        else:
            return
        if isinstance(frame, protocol.ChatRequest):
            await self._send(protocol.Response(frame.request_id).error(reason))

    async def _frame(self, frame: protocol.Frame) -> None:
        ref, admission = self._ref, self._admitted
        match frame:
            case protocol.ChatRequest():
                await self._submit(frame)
            case protocol.ResumeRequest(probe_id):
                seen = await self._snapshot()
                await self._do(self._handshake.probed(probe_id, seen))
            case protocol.ResumeAck(request_id):
                seen = await self._snapshot()
                turn = None
                if seen.active is None:
                    turn = await door.run(status.find_turn, ref, request_id)
                await self._do(self._handshake.acked(request_id, seen, turn))
            case protocol.Cancel(request_id):
                if admission.may_control:
                    await door.run(ends.cancel, ref, request_id)
            case protocol.Clear():
                if admission.may_control:
                    await clearing.clear(ref, self._id)
            case protocol.SyncMessages(messages):
                if admission.may_write and messages:
                    await door.run(queue.sync_messages, ref, messages, self._id)
            case protocol.Rpc(call_id, method):
                text = f"Method {method} does not exist"
                await self._send(protocol.rpc_error(call_id, text))
            case protocol.Malformed(request_id, problem):
                await self._send(protocol.Response(request_id).error(problem))
            case protocol.Ignored(why):
                logger.debug("a frame was ignored: %s", why)

    async def _submit(self, frame: protocol.ChatRequest) -> None:
        if not self._admitted.may_write:
            await self._send(protocol.Response(frame.request_id).error(NOT_ALLOWED))
            return
        submission = queue.Submission(
            request_id=frame.request_id,
            messages=frame.messages,
            origin_ids=protocol.origin_ids(frame.messages),
            trigger=frame.trigger,
            body=frame.body,
            client_tools=frame.client_tools,
            user_key=self._admitted.user_key,
            connection=self._id,
        )
        submitted = await door.run(queue.submit, self._ref, submission)
        if submitted.turn.status.over:
            await self._do(self._handshake.asked_again(submitted.turn))
        else:
            self._handshake.submitted(frame.request_id)
            get_runner().kick(self._ref)

    # Doing

    async def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(frame):
                    await self._send(frame)
                case SendTranscript():
                    await self._send(await self._transcript())
                case Follow() | Replay():
                    await self._follower.start(action)
                case Unfollow():
                    await self._follower.stop()
                case Drain():
                    pass

    async def _send(self, text: str) -> None:
        # Frames of the pump and of the follower: one at a time, first come first.
        async with self._order:
            try:
                await self._send_text(text)
            except Exception as error:
                raise Gone from error

    async def _transcript(self, *, connect: bool = False) -> str:
        texts = await door.run(transcript.texts, self._ref)
        return protocol.messages(texts, connect=connect)

    async def _snapshot(self) -> Snapshot:
        seen = await door.run(status.snapshot, self._ref)
        if seen.lapsed and await self._sweep():
            seen = await door.run(status.snapshot, self._ref)
        return seen

    async def _sweep(self) -> bool:
        if get_runner().runs(self._ref):
            # Ours, and only late with its renewal.
            return False
        swept = await recovery.sweep(self._ref)
        if swept:
            get_runner().kick(self._ref)
        return swept

    def _note_lapsed(self) -> None:
        self._lapsed = True
        self._news.set()

    @property
    def _admitted(self) -> Admission:
        assert self._admission is not None
        return self._admission

    @property
    def _ref(self) -> ConversationRef:
        return self._admitted.ref
