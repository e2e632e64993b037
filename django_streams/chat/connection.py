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
from dataclasses import replace
from typing import TYPE_CHECKING

from .. import conf
from ..access import Subject, off_loop
from ..exceptions import StreamSerializationError
from ..failures import public_reason
from ..turns import continuing, door, hooks, patrol, recovery, status, transcript
from ..turns import state as state_of
from ..turns.policy import CancelAfter
from ..turns.records import ConversationRef, Event, EventKind, Snapshot
from ..turns.replay import turn_streams, with_partial
from ..turns.runner import get_runner
from ..turns.viewers import Viewer, get_viewers
from ..turns.watch import Subscription, get_watch
from . import protocol
from .desk import Desk
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
from .inbox import Inbox
from .outbox import Outbox
from .recovering import Recovering
from .rpc import Calls

if TYPE_CHECKING:
    from .agent import Agent

logger = logging.getLogger("django_streams.chat")

CROSSING = 5.0
"""Seconds in which a transcript surely reaches a client that takes frames."""

TRY_AGAIN = 3011
"""Close code of a failure on our side: the client connects again. Not 1011: Daphne
sends an application's 1000 and 3000 to 4999 alone."""
FLOODED = 4429
"""Close code of a client that sends too fast: it does not connect again."""


LAST = 6.0
"""Seconds for what a client sent before it went. Daphne kills what is not over ten
seconds after the close."""
PARTING = 2.0
"""Seconds to tell that it waits for no continuation any more."""


class Connection:
    """Serves a socket from :meth:`start` to :meth:`close`.

    *send* sends one text frame, *refuse* closes the socket with a code and does not
    raise.
    """

    def __init__(
        self,
        agent: Agent,
        subject: Subject,
        name: str,
        send: Callable[[str], Awaitable[None]],
        refuse: Callable[[int], Awaitable[None]],
    ) -> None:
        self.agent = agent
        self._subject = subject
        self._name = name
        self._refuse = refuse
        self.id = secrets.token_hex(8)
        """Names this connection to itself in the event log."""
        self._news = asyncio.Event()
        self._outbox = Outbox(send, self._news.set)
        self._inbox = Inbox(self._news.set)
        self._todo: deque[Action] = deque()
        """What events call for and is not done; kept until it is."""
        self.handshake = Handshake(resume=agent.resume, connection=self.id)
        self._calls = Calls(type(agent), self._outbox.send)
        self._desk = Desk(self, self._calls)
        self._follower = Follower(
            turn_streams(door.alias()),
            self._outbox.send,
            self._outbox.send_all,
            self.do,
            self._news.set,
        )
        self._position = 0
        self._told = float("-inf")
        """When this client was last sent a transcript, by the loop's clock."""
        self.told_any = False
        """Whether there was a message in it."""
        self._lapsed = False
        self._recovering = Recovering()
        self._admission: Admission | None = None
        self._following: Subscription | None = None
        self._viewer: Viewer | None = None
        """None where it makes no difference whether somebody watches."""
        self._pump: asyncio.Task[None] | None = None
        self._handling = False
        self._all_came = False
        """The client has gone, and what it sent is in the inbox."""

    def start(self) -> None:
        """Begin to serve; returns at once."""
        patrol.start()
        self._pump = asyncio.create_task(self._serve())

    async def receive(self, text: str | None) -> None:
        """Take a frame; waits while too many are unhandled."""
        await self._inbox.put(text)

    async def finish(self) -> None:
        """The client has gone: handle what it sent before, and send nothing more.

        It counts as gone at once. What takes longer than :data:`LAST` is left to
        :meth:`close`, and so it is when this is cancelled.
        """
        self._all_came = True
        self._outbox.close()
        self._news.set()
        if self._pump is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await self._calls.stop()
                await self._follower.stop()
                if self._viewer is not None:
                    await self._viewer.leave()
                await asyncio.wait({self._pump})

    async def close(self) -> None:
        """Stop serving; returns when no task of this connection is left."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait({self._pump})
        await self._calls.stop()
        await self._follower.stop()
        if self._viewer is not None and not self._viewer.left:
            await self._viewer.leave()
        if self.handshake.awaits:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(PARTING):
                    await door.run(continuing.leave, self.ref, self.id)

    # The pump

    async def _serve(self) -> None:
        try:
            await self._enter()
            recheck = asyncio.get_running_loop().time() + conf.get().ACCESS_RECHECK
            while not self.gone:
                self._news.clear()
                try:
                    await self._step()
                except Refused:
                    raise
                except Exception:
                    logger.exception("serving %s goes on", self.ref)
                    await asyncio.sleep(conf.get().POLL_MAX)
                    continue
                try:
                    async with asyncio.timeout_at(recheck):
                        await self._news.wait()
                except TimeoutError:
                    recheck += conf.get().ACCESS_RECHECK
                    await self._check_again()
            await self._handle_the_last()
        except asyncio.CancelledError:
            if lost := len(self._inbox) + self._handling:
                name = self.agent.agent_name
                logger.warning("%d frames of a client of %s were lost", lost, name)
            raise
        except Refused as refused:
            await self._end(refused.code)
        except Exception:
            logger.exception("a connection to %s failed", self.agent.agent_name)
            await self._end(TRY_AGAIN)
        finally:
            if self._following is not None:
                self._following.close()
            self._inbox.close()

    async def _end(self, code: int) -> None:
        await self._calls.stop()
        await self._follower.stop()
        await self._refuse(code)

    async def _enter(self) -> None:
        """Admit the client and tell it where things stand."""
        self._admission = await admit(self.agent, self._subject, self._name)
        if self.gone:
            return
        self._following = get_watch().follow(
            self.ref, self._news.set, self._note_lapsed
        )
        if isinstance(self.agent.when_unwatched, CancelAfter):
            self._viewer = get_viewers().viewer(self.ref, self.id)
            await self._viewer.confirm()
        await self._tell_all(greet=True)

    async def _tell_all(self, *, greet: bool = False) -> None:
        """The state, the transcript and, if a turn is on, the offer of its reply.

        Whatever changes once the position in the events was read is told again.
        """
        seen = await self.snapshot()
        state = await self._state()
        if greet:
            agent, name, follows = self.ref.agent, self.ref.name, state is not None
            await self.send(protocol.identity(agent, name, state_follows=follows))
        if state is not None:
            await self.send(protocol.state(state))
        await self.do(self.handshake.overtaken(seen))
        await self.send(await self._transcript(connect=True))
        await self.do(self.handshake.connected(seen))
        self._looked(seen)
        # Last: if the database failed on the way, all of it is done again.
        self._position = seen.events
        if seen.queued is not None:
            get_runner().kick(self.ref)

    async def _check_again(self) -> None:
        """Refuse a client that would not be admitted now."""
        fresh = await off_loop(self._subject.fresh)
        admission = await admit(self.agent, fresh, self._name)
        if admission.ref != self.ref:
            raise Refused(FORBIDDEN)
        self._admission = admission

    async def _step(self) -> None:
        """Handle all that has come; ends when only news can bring more."""
        while True:
            await self._handle_frames()
            if self.gone:
                return
            if self._lapsed:
                self._lapsed = False
                if await self._sweep():
                    self._looked(await door.run(status.snapshot, self.ref))
            if not await self._work_off() or not await self._next_event():
                return

    async def _handle_frames(self) -> None:
        """Handle the frames that are there, in order."""
        while True:
            if self._inbox.flooded:
                raise Refused(FLOODED)
            frame = await self._inbox.take()
            if frame is None:
                return
            self._handling = True
            await self._contained(frame)
            self._handling = False

    async def _handle_the_last(self) -> None:
        """Handle what a client that has gone sent before."""
        while True:
            self._news.clear()
            all_came = self._all_came
            await self._handle_frames()
            if all_came:
                return
            # The socket takes nothing; that it has ended is still to be told.
            await self._news.wait()

    async def _contained(self, frame: protocol.Frame) -> None:
        """Handle a frame; what goes wrong with it is not the socket's end."""
        try:
            await self._desk.handle(frame)
        except Refused:
            raise
        except StreamSerializationError as error:
            # What the client sent cannot be kept: its fault, and no secret.
            await self._desk.failed(frame, str(error))
        except Exception as error:
            doing = f"a {type(frame).__name__} frame"
            await self._desk.failed(frame, public_reason(error, doing))

    async def _work_off(self) -> bool:
        """Do what events called for; False when it must wait for the follower."""
        while self._todo:
            action = self._todo[0]
            if isinstance(action, Drain) and self._follower.busy:
                return False
            await self.do([action])
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
        mine = event.body.get("connection") == self.id
        match event.kind:
            case EventKind.SUBMITTED | EventKind.MESSAGES:
                if self._viewer is not None:
                    await self._viewer.confirm()
                return [] if mine else [SendTranscript()]
            case EventKind.STARTED:
                self._tell(self._recovering.over(event.body["turn"]))
                return self.handshake.started(Reply.from_event(event.body))
            case EventKind.ENDED:
                self._tell(self._recovering.over(event.body["turn"]))
                # The process that ran this turn may be gone before the next one.
                get_runner().kick(self.ref)
                waiting = False
                if self.handshake.state is State.PARKED:
                    waiting = (await self.snapshot()).pending is not None
                return self.handshake.ended(event.body, waiting=waiting)
            case EventKind.CLEARED:
                return self.handshake.cleared(mine=mine)
            case EventKind.UPDATED:
                text = await door.run(
                    transcript.text_of, self.ref, event.body["message"]
                )
                return [] if text is None else [Send(protocol.message_updated(text))]
            case EventKind.STATE:
                state = None if mine else await self._state()
                return [] if state is None else [Send(protocol.state(state))]
            case EventKind.CANCEL:
                return []

    # Doing

    @property
    def gone(self) -> bool:
        """The client is there no more, and sees nothing."""
        return self._outbox.gone

    async def do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            if self.gone:
                return
            match action:
                case Send(frame):
                    await self.send(frame)
                case SendTranscript(partial):
                    await self.send(await self._transcript(partial=partial))
                case Follow() | Replay():
                    await self._follower.start(action)
                case Unfollow():
                    await self._follower.stop()
                case Drain():
                    pass

    async def send(self, text: str) -> None:
        await self._outbox.send(text)

    async def _transcript(self, *, connect: bool = False, partial: bool = False) -> str:
        texts = await door.run(transcript.texts, self.ref)
        if partial:
            texts = await with_partial(self.ref, texts)
        self.told_any = bool(texts)
        self._told = asyncio.get_running_loop().time()
        return protocol.messages(texts, connect=connect)

    async def _state(self) -> str | None:
        """What was stored, or else what the agent says a conversation begins with."""
        stored = await door.run(state_of.load, self.ref)
        if stored is not None:
            return stored
        try:
            initial = await hooks.call(self.agent.get_initial_state)
            return None if initial is None else state_of.encode(initial)
        except Exception:
            logger.exception("get_initial_state of %s failed", self.ref.agent)
            return None

    async def tell_again(self) -> None:
        """Make up for a transcript that crossed what the client just sent.

        The client shows its own change at once, and a transcript from before it
        replaces what it shows: the message it sent would be gone.
        """
        now = asyncio.get_running_loop().time()
        if not self.gone and now < self._told + CROSSING:
            await self.send(await self._transcript(connect=True))

    async def snapshot(self) -> Snapshot:
        seen = await door.run(status.snapshot, self.ref)
        if not seen.lapsed:
            return seen
        if await self._sweep():
            return await door.run(status.snapshot, self.ref)
        # Its runner is only late, or gets the time to come back.
        return replace(seen, lapsed=False)

    async def _sweep(self) -> bool:
        if get_runner().runs(self.ref):
            # Ours, and only late with its renewal.
            return False
        swept = await recovery.sweep(self.ref)
        if swept:
            patrol.again(self.ref)
        return swept

    def _looked(self, seen: Snapshot) -> None:
        lost = seen.running if seen.lapsed else None
        self._tell(self._recovering.looked(lost.request_id if lost else ""))

    def _tell(self, frame: str | None) -> None:
        if frame is not None:
            self._todo.append(Send(frame))

    def _note_lapsed(self) -> None:
        self._lapsed = True
        self._news.set()

    @property
    def admission(self) -> Admission:
        assert self._admission is not None
        return self._admission

    @property
    def ref(self) -> ConversationRef:
        return self.admission.ref
