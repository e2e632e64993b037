"""One run of one turn: the handler in one task, its lease and stop in another.

The handler is driven by a single task for its whole life (time limits and task
groups around a ``yield`` rely on that), and is cancelled only while its own
code runs, never between a chunk's way into the log and into the message: so
what is kept is what was shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from .. import conf, ids
from ..exceptions import (
    StreamCancelledError,
    StreamFencedError,
    StreamUnavailableError,
)
from ..failures import contained, public_reason
from ..messages.answers import Change
from ..store.base import CANCELLED
from ..tools import ToolSet
from . import answering, door, ends, hooks, lease, mending, queue, source, users
from .agents import Agent, Make
from .lease import Taken
from .patience import Patience
from .pulse import Pulse
from .records import ConversationRef, Ending, TurnStatus, UIMessage
from .reply import Reply, Stopped
from .responses import get_responses
from .toolbox import Toolbox
from .turn import Turn, to_answer
from .watched import watch_over

logger = logging.getLogger("django_streams.turns")

P = ParamSpec("P")
R = TypeVar("R")

INTERRUPTED_TEXT = "The reply was interrupted."
"""What clients read about a turn whose runner vanished."""

STALLED_TEXT = "The reply stalled: nothing came for {seconds:g} s."

STOP_GRACE = 0.5
"""How long a stopped turn waits for its handler's ``finally`` before it ends;
the handler is then left to finish on its own."""


HURRY = 0.3
"""Seconds that a turn which is to stop, or a process which is to end, gives a
database that does not take what was said last."""


class InBandError(Exception):
    """The handler yielded an error chunk: its text is for the public."""


def _asks(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "tool-approval-request"


def _forget(task: asyncio.Task[Any]) -> None:
    # What a handler raises after its turn has ended is nobody's business.
    if not task.cancelled():
        task.exception()


class Run:
    """Runs a turn that this process has taken, to its end. Use once."""

    def __init__(self, ref: ConversationRef, taken: Taken, make: Make) -> None:
        self._ref = ref
        self._record = taken.turn
        self._log = taken.log
        self._make = make
        self._agent: Agent | None = None
        self._reply: Reply | None = None
        self._turn: Turn | None = None
        self._toolbox: Toolbox | None = None
        self._pulse = Pulse(ref, taken.turn)
        self._patience = Patience(self._name, self._pulse)
        # Held while chunks go into the log and the message: who holds it may
        # cancel the handler without tearing the two apart.
        self._emitting = asyncio.Lock()
        self.gives_back = False
        """Whether a cancel is the orderly end of its process, which costs the turn
        none of its attempts. Any other may be the turn's own doing."""

    async def run(self) -> None:
        """Run the handler and end the turn; a lost turn is left alone.

        Cancelled (the process ends): nothing is settled. What the handler said
        is stored and the lease given up, so that whoever meets the turn next
        goes on with it at once; if even that is cut short, the lease lapses.
        """
        pulse = asyncio.create_task(self._pulse.run(self._cancel_turn))
        handler = asyncio.create_task(self._handle())
        stopping = asyncio.create_task(self._pulse.stopping.wait())
        try:
            await asyncio.wait({handler, stopping}, return_when="FIRST_COMPLETED")
            if not handler.done():
                with self._hurried():
                    async with self._emitting:
                        handler.cancel()
                await asyncio.wait({handler}, timeout=STOP_GRACE)
            if not self._pulse.lost:
                await self._end(handler)
        except asyncio.CancelledError:
            await self._hand_over(handler)
            raise
        finally:
            tasks = {pulse, handler, stopping}
            for task in tasks:
                task.cancel()
                task.add_done_callback(_forget)
            await asyncio.wait(tasks, timeout=STOP_GRACE)
            if not handler.done():
                logger.warning(
                    "%s is over, and its handler goes on though it was cancelled: what "
                    "catches CancelledError must raise it again",
                    self._name,
                )

    def _cancel_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancelled.set()

    async def _hand_over(self, handler: asyncio.Task[bool]) -> None:
        """Let another process go on at once."""
        self._patience.ended = True
        with self._hurried():
            async with self._emitting:
                handler.cancel()
            await asyncio.wait({handler}, timeout=STOP_GRACE)
            try:
                if self._reply is not None and self._reply.writer is not None:
                    await self._reply.writer.aflush()
                await self._put(lease.release, self._record, free=self.gives_back)
            except Exception as error:
                logger.warning("%s: its lease has to lapse: %s", self._name, error)

    @contextlib.contextmanager
    def _hurried(self) -> Iterator[None]:
        """Nobody waits inside the block for what the database does not take."""
        timer = asyncio.get_running_loop().call_later(HURRY, self._hurry)
        try:
            yield
        finally:
            timer.cancel()

    def _hurry(self) -> None:
        self._patience.hurry.set()
        if self._reply is not None and self._reply.writer is not None:
            self._reply.writer.hurry()

    # The handler

    async def _handle(self) -> bool:
        """Drive the handler; whether it had anything to say (not None)."""
        with contained():
            return await self._drive()

    async def _drive(self) -> bool:
        turn, reply = await self._prepare()
        agent = self._agent = self._make()
        self._pulse.watched = watch_over(self._ref, self._record, agent.when_unwatched)
        if self._pulse.stopping.is_set():
            raise Stopped
        if reply.finished:
            # Its process died between the last chunk and the end of the turn.
            return True
        toolbox = self._equip(agent, turn, reply)
        if turn.attempt > 1:
            await self._tell_recovered(agent, turn)
        with self._pulse.expect(agent.stall_timeout):
            await self._run_allowed(toolbox, turn, reply)
            result = await source.call(agent.on_chat_message, turn)
            if result is None and reply.writer is None:
                return False
            async with aclosing(
                source.items(() if result is None else result)
            ) as items:
                await self._begin(reply)
                async for item in items:
                    await self._emit(reply, item)
                    await toolbox.answer(item)
                    # What is only put by gives the loop no turn, and a handler
                    # that blocks a little between two words would keep the lease
                    # from being renewed and the stop from being heard.
                    await asyncio.sleep(0)
            await toolbox.end_open()
        async with self._emitting:
            if self._pulse.stopping.is_set():
                raise Stopped
            await reply.finish()
        return result is not None or reply.message is not None

    def _equip(self, agent: Agent, turn: Turn, reply: Reply) -> Toolbox:
        """Give the turn its agent's tools."""

        async def emit(chunk: dict[str, Any]) -> None:
            await self._begin(reply)
            await self._emit(reply, chunk)

        async def flush() -> None:
            await self._begin(reply)
            await self._flush(reply)

        tools = ToolSet(agent.tools)
        toolbox = Toolbox(
            tools, reply, turn=turn, emit=emit, flush=flush, alive=self._pulse.busy
        )
        turn.equip(toolbox, tools, steps=agent.max_tool_steps)
        self._toolbox = toolbox
        return toolbox

    async def _run_allowed(self, toolbox: Toolbox, turn: Turn, reply: Reply) -> None:
        """Run what was allowed since the reply ended; the handler gets the results."""
        if self._record.continuation and await toolbox.run_allowed():
            message = copy.deepcopy(reply.message)
            if message is not None:
                turn.renew_message(message)

    async def _prepare(self) -> tuple[Turn, Reply]:
        """What the handler gets, and the reply it goes on with."""
        messages, user = await self._persist(self._load)
        reply = self._reply = Reply(self._record, self._patience, self._base(messages))
        partial = None
        if self._log is not None:
            await reply.resume(self._log.stream_id)
            reply.writer = self._pulse.writer = self._log.writer()
            partial = copy.deepcopy(reply.message)
        if partial is not None:
            messages = [m for m in messages if m.get("id") != partial["id"]]
            messages.append(partial)
        self._turn = Turn(
            self._record, self._ref, messages, user, renew=self._pulse.beat
        )
        self._turn.partial = partial
        return self._turn, reply

    def _load(self) -> tuple[list[UIMessage], Any]:
        messages = mending.load(self._record, self._ref.wake_key)
        return to_answer(messages, self._record), users.load(self._record.user_key)

    def _base(self, messages: list[UIMessage]) -> UIMessage | None:
        """The message that a continuation adds to."""
        if not self._record.continuation:
            return None
        mine = (m for m in messages if m.get("id") == self._record.message_id)
        return next(mine, None)

    async def _tell_recovered(self, agent: Agent, turn: Turn) -> None:
        try:
            await hooks.call(agent.on_recover, turn)
        except Exception:
            logger.exception("on_recover of %s failed", self._name)

    async def _begin(self, reply: Reply) -> None:
        """Open the reply's stream, if it is not, and tell observers of it."""
        async with self._emitting:
            if reply.writer is not None:
                return
            if self._pulse.stopping.is_set():
                raise Stopped
            stream = ids.new_id("turn_")
            seconds = conf.get().TURN_LEASE
            try:
                with self._pulse.busy():
                    log = await self._put(
                        lease.begin, self._ref, self._record, stream, seconds
                    )
            except queue.Lost:
                self._pulse.lose()
                raise Stopped from None
            self._record = replace(self._record, stream=stream)
            reply.writer = self._pulse.writer = log.writer()

    async def _emit(self, reply: Reply, item: Any) -> None:
        if isinstance(item, dict) and item.get("type") == "error":
            raise InBandError(str(item.get("errorText", "")))
        async with self._emitting:
            if self._pulse.stopping.is_set():
                raise Stopped
            try:
                with self._pulse.busy():
                    await self._say(reply, item)
                    if _asks(item) and not self._record.continuation:
                        await self._keep_partial(reply)
            except (StreamFencedError, queue.Lost):
                self._pulse.lose()
                raise Stopped from None
            except StreamCancelledError:
                raise Stopped from None

    async def _say(self, reply: Reply, item: Any) -> None:
        if (change := reply.late(item)) is not None:
            await self._settle_earlier(reply, change)
        else:
            await reply.say(item)

    async def _settle_earlier(self, reply: Reply, change: Change) -> None:
        """Store the output of a call of an earlier message."""
        assert self._turn is not None
        # Who watches sees it behind what was said before it.
        await reply.flush()
        message = await self._settled_earlier(change)
        if message is not None:
            self._turn.renew_message(message)

    async def _settled_earlier(self, change: Change) -> UIMessage | None:
        record, ref, agent = self._record, self._ref, self._agent
        assert agent is not None
        while True:
            proposal = await self._patience.outlast(
                lambda: answering.propose(agent, ref, change, but=record.message_id),
                speaking=True,
            )
            with contextlib.suppress(answering.Outdated):
                return await self._put(
                    answering.settle_earlier, record, ref.wake_key, change, proposal
                )

    async def _keep_partial(self, reply: Reply) -> None:
        """Store a reply that asks for an approval, so that a reload can give it.

        A continuation is stored at its end only: its message is stored already.
        """
        kept, answered = await self._kept()
        if reply.writer is not None and kept is not None:
            await reply.flush()
            await self._put(answering.keep_partial, self._record, kept, answered)

    async def _flush(self, reply: Reply) -> None:
        async with self._emitting:
            if self._pulse.stopping.is_set():
                raise Stopped
            try:
                with self._pulse.busy():
                    await reply.flush()
            except StreamFencedError:
                self._pulse.lose()
                raise Stopped from None
            except StreamCancelledError:
                raise Stopped from None

    # The end

    async def _end(self, handler: asyncio.Task[bool]) -> None:
        if self._log is not None and (self._reply is None or not self._reply.writer):
            # What an earlier attempt said belongs to the end. If it cannot be
            # read the lease lapses, and whoever meets the turn next tries again.
            await self._prepare()
        ending = await self._ending(handler)
        try:
            limit = self._agent.max_persisted_messages if self._agent else None
            message, answered = await self._kept()
            ending = replace(
                ending, message=message, answered=answered, keep_messages=limit
            )
            settled = await self._settle(ending)
        except Exception:
            logger.exception("%s: the reply was not saved", self._name)
            ending = Ending(status=TurnStatus.ERRORED, error=hooks.SAVE_FAILED)
            settled = await self._settle(ending)
        if settled and ending.is_heard(self._record):
            get_responses().call(
                self._ref, self._record, ended=ending, agent=self._agent
            )

    async def _ending(self, handler: asyncio.Task[bool]) -> Ending:
        """How the turn ends; the log and the message are complete then."""
        error = None
        if handler.done() and not handler.cancelled():
            error = handler.exception()
            if error is None:
                return Ending(
                    status=TurnStatus.COMPLETED,
                    spoke=handler.result(),
                    says_all=self._reply is not None and self._reply.says_all,
                )
        if self._reply is not None:
            stopped = self._pulse.stopping.is_set()
            with self._hurried() if stopped else contextlib.nullcontext():
                await self._cut(self._reply)
        if isinstance(error, InBandError):
            return Ending(status=TurnStatus.ERRORED, error=str(error), in_band=True)
        if self._pulse.stalled is not None:
            text = STALLED_TEXT.format(seconds=self._pulse.stalled)
            return Ending(status=TurnStatus.ERRORED, error=text)
        cut_short = isinstance(error, (Stopped, StreamCancelledError))
        if cut_short or self._pulse.stopping.is_set():
            return Ending(status=TurnStatus.ABORTED)
        # Without an error the handler has cancelled itself.
        text = INTERRUPTED_TEXT if error is None else public_reason(error, self._name)
        return Ending(status=TurnStatus.ERRORED, error=text)

    async def _cut(self, reply: Reply) -> None:
        """Make what was said whole, as far as it can still be stored."""
        for chunk in () if self._toolbox is None else self._toolbox.cut_short():
            try:
                await self._say(reply, chunk)
            except StreamUnavailableError:
                break
            except (StreamFencedError, StreamCancelledError):
                pass
        await reply.cut()

    async def _kept(self) -> tuple[UIMessage | None, Collection[str]]:
        """What is to be stored, and the calls of it whose answers it has."""
        built = None if self._reply is None else self._reply.message
        if built is None:
            return None, ()
        if self._agent is None:
            # Stopped before the handler began; an earlier attempt had spoken.
            self._agent = self._make()
        pk = self._record.conversation_pk
        whole, known = await self._persist(answering.answered, pk, built)
        [message] = await hooks.sanitised(self._agent, [whole])
        return message, known

    async def _settle(self, ending: Ending) -> bool:
        """End the turn and its stream together; False when it was not ours."""
        try:
            return await self._patience.outlast(lambda: self._settle_once(ending))
        except (queue.Lost, StreamFencedError):
            logger.warning("%s was taken over; its end is not ours", self._name)
            return False

    async def _settle_once(self, ending: Ending) -> bool:
        record, wake_key = self._record, self._ref.wake_key

        def commit() -> None:
            ends.finish(record, wake_key, ending)

        writer = None if self._reply is None else self._reply.writer
        if writer is None:
            return await door.run(ends.finish_alone, record, wake_key, ending)
        if ending.status is TurnStatus.COMPLETED:
            settled = await writer.aclose(commit=commit)
        else:
            aborted = ending.status is TurnStatus.ABORTED
            reason = CANCELLED if aborted else ending.error
            # A conversation that was cleared keeps no log of what it said.
            discard = aborted and await door.run(ends.outdated, record)
            settled = await writer.aerror(reason, commit=commit, discard=discard)
        if not settled:
            # Somebody settled the stream by hand; the turn still has to end.
            return await door.run(ends.finish_alone, record, wake_key, ending)
        return True

    async def _persist(
        self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """:func:`.door.run`, but however long the database is away."""
        return await self._patience.outlast(lambda: door.run(work, *args, **kwargs))

    async def _put(
        self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """The same, for what is worth nothing once the turn is to stop."""
        hurry = self._patience.hurry
        return await self._patience.outlast(
            lambda: door.run_hurried(hurry, work, *args, **kwargs), speaking=True
        )

    @property
    def _name(self) -> str:
        return f"turn {self._record.request_id!r} of {self._ref.agent}"
