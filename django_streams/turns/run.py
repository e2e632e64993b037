"""One run of one turn: the handler in one task, its lease and stop in another.

The handler is driven by a single task for its whole life (time limits and task
groups around a ``yield`` rely on that), and is cancelled only while its own
code runs, never between a chunk's way into the log and into the message: so
what is kept is what was shown.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import string
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from .. import conf, ids
from ..exceptions import (
    StreamCancelledError,
    StreamClosedError,
    StreamFencedError,
    StreamUnavailableError,
)
from ..failures import public_reason
from ..messages import Accumulator, Grammar
from ..store.base import CANCELLED, INTERRUPTED
from ..writer import StreamWriter
from . import door, ends, hooks, lease, queue, source, transcript, users
from .records import ConversationRef, Ending, TurnRecord, TurnStatus, UIMessage
from .replay import stored_message, turn_streams
from .turn import Turn, to_answer
from .watch import get_watch

logger = logging.getLogger("django_streams.turns")

_BASE36 = string.digits + string.ascii_lowercase

INTERRUPTED_TEXT = "The reply was interrupted."
"""What clients read about a turn whose runner vanished."""

SAVE_FAILED = "Failed to save the response."

RENEWALS_PER_LEASE = 3.3
"""A lease of 5 s is renewed every 1.5 s: two renewals may fail."""

STOP_GRACE = 0.5
"""How long a stopped turn waits for its handler's ``finally`` before it ends;
the handler is then left to finish on its own."""


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What ``on_chat_response`` is told."""

    request_id: str
    status: str
    """``"completed"``, ``"error"`` or ``"aborted"``."""
    message: UIMessage | None
    continuation: bool
    error: str | None = None


class Agent(Protocol):
    """What a run needs of the user's class."""

    def on_chat_message(self, turn: Any) -> Any: ...

    def on_chat_response(self, result: TurnResult) -> Any: ...

    def sanitize_message(self, message: UIMessage) -> UIMessage: ...


class Stopped(Exception):
    """Leaves the loop over the handler's items when the turn is to stop."""


class InBandError(Exception):
    """The handler yielded an error chunk: its text is for the public."""


def new_message_id() -> str:
    """An id in the form that the official server gives its replies."""
    tail = "".join(secrets.choice(_BASE36) for _ in range(9))
    return f"assistant_{time.time_ns() // 1_000_000}_{tail}"


def _forget(task: asyncio.Task[Any]) -> None:
    # What a handler raises after its turn has ended is nobody's business.
    if not task.cancelled():
        task.exception()


class Run:
    """Runs a claimed turn to its end. Use once."""

    def __init__(
        self, ref: ConversationRef, record: TurnRecord, make: Callable[[], Agent]
    ) -> None:
        self._ref = ref
        self._record = record
        self._make = make
        self._agent: Agent | None = None
        self._lease = conf.get().TURN_LEASE
        self._streams = turn_streams(door.alias())
        self._grammar = Grammar(
            record.message_id,
            text_id=record.request_id,
            continuation=record.continuation,
        )
        self._built = Accumulator(record.message_id)
        self._writer: StreamWriter | None = None
        self._turn: Turn | None = None
        self._stopping = asyncio.Event()
        self._lost = False
        # Held while chunks go into the log and the message: who holds it may
        # cancel the handler without tearing the two apart.
        self._emitting = asyncio.Lock()

    async def run(self) -> None:
        """Run the handler and end the turn; a lost turn is left alone.

        Cancelled (the process ends): nothing is settled. The lease lapses and
        whoever meets the turn next decides.
        """
        control = asyncio.create_task(self._control())
        handler = asyncio.create_task(self._handle())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({handler, stopping}, return_when="FIRST_COMPLETED")
            if not handler.done():
                async with self._emitting:
                    handler.cancel()
                await asyncio.wait({handler}, timeout=STOP_GRACE)
            if not self._lost:
                await self._end(handler)
        finally:
            tasks = {control, handler, stopping}
            for task in tasks:
                task.cancel()
                task.add_done_callback(_forget)
            await asyncio.wait(tasks, timeout=STOP_GRACE)

    # Lease and stop

    async def _control(self) -> None:
        """Renew the lease, hear a request to stop, notice that the turn is lost."""
        news = asyncio.Event()
        following = get_watch().follow(self._ref, news.set, attentive=True)
        try:
            while not self._lost:
                news.clear()
                await self._renew()
                if self._writer is not None and self._writer.cancelled:
                    self._stop()
                try:
                    async with asyncio.timeout(self._lease / RENEWALS_PER_LEASE):
                        await news.wait()
                except TimeoutError:
                    pass
        finally:
            following.close()

    async def _renew(self) -> None:
        try:
            if await door.run(lease.renew, self._record, self._lease):
                self._stop()
        except queue.Lost:
            self._lost = True
            self._stop()
        except Exception as error:
            logger.warning("%s: lease not renewed: %s", self._name, error)

    def _stop(self) -> None:
        self._stopping.set()
        if self._turn is not None:
            self._turn.cancelled.set()

    # The handler

    async def _handle(self) -> bool:
        """Drive the handler; whether it had anything to say (not None)."""
        messages, user = await door.run(self._load)
        self._turn = Turn(self._record, self._ref, messages, user, renew=self._renew)
        if self._stopping.is_set():
            raise Stopped
        self._agent = self._make()
        result = await source.call(self._agent.on_chat_message, self._turn)
        if result is None:
            return False
        async with aclosing(source.items(result)) as items:
            self._writer = await self._begin()
            async for item in items:
                if isinstance(item, str):
                    await self._emit(self._grammar.text(item))
                elif isinstance(item, dict) and item.get("type") == "error":
                    raise InBandError(str(item.get("errorText", "")))
                else:
                    await self._emit(self._grammar.chunk(item))
        await self._emit(self._grammar.finish())
        async with self._emitting:
            # Hears of a stream that was stopped meanwhile and dropped the rest.
            await self._writer.aflush()
        return True

    def _load(self) -> tuple[list[UIMessage], Any]:
        messages = transcript.load(self._record.conversation_pk)
        return to_answer(messages, self._record), users.load(self._record.user_key)

    async def _begin(self) -> StreamWriter:
        """Open the reply's stream and tell observers of it."""
        async with self._emitting:
            if self._stopping.is_set():
                raise Stopped
            stream = ids.new_id("turn_")
            writer = await self._streams.aopen(
                stream,
                tag=self._record.request_id,
                owner=self._ref.owner or None,
                lease=self._lease,
                on_lapse="wait",
                metadata={
                    "conversation": self._ref.key,
                    "messageId": self._record.message_id,
                    "continuation": self._record.continuation,
                },
            )
            begun = replace(self._record, stream=stream)
            try:
                await door.run(queue.begin, begun, self._ref.wake_key, stream=stream)
            except queue.Lost:
                # Nobody knows of this stream but we.
                await writer.aerror(INTERRUPTED)
                self._lost = True
                raise Stopped from None
            self._record = begun
            return writer

    async def _emit(self, chunks: list[dict[str, Any]]) -> None:
        assert self._writer is not None
        async with self._emitting:
            if self._stopping.is_set():
                raise Stopped
            for chunk in chunks:
                if not self._built.is_repeat(chunk):
                    await self._writer.apush(chunk)
                    self._built.apply(chunk)

    # The end

    async def _end(self, handler: asyncio.Task[bool]) -> None:
        ending = await self._ending(handler)
        try:
            ending = replace(ending, message=await self._kept())
            settled = await self._settle(ending)
        except Exception:
            logger.exception("%s: the reply was not saved", self._name)
            ending = Ending(status=TurnStatus.ERRORED, error=SAVE_FAILED)
            settled = await self._settle(ending)
        if settled:
            await self._respond(ending)

    async def _ending(self, handler: asyncio.Task[bool]) -> Ending:
        """How the turn ends; the log and the message are complete then."""
        error = None
        if handler.done() and not handler.cancelled():
            error = handler.exception()
            if error is None:
                return Ending(status=TurnStatus.COMPLETED, spoke=handler.result())
        await self._cut()
        if isinstance(error, InBandError):
            return Ending(status=TurnStatus.ERRORED, error=str(error), in_band=True)
        cut_short = isinstance(error, (Stopped, StreamCancelledError))
        if cut_short or self._stopping.is_set():
            return Ending(status=TurnStatus.ABORTED)
        # Without an error the handler has cancelled itself.
        text = INTERRUPTED_TEXT if error is None else public_reason(error, self._name)
        return Ending(status=TurnStatus.ERRORED, error=text)

    async def _cut(self) -> None:
        """End an open text of ours, and make sure that the message is the log."""
        if self._writer is None:
            return
        try:
            for chunk in self._grammar.cut():
                await self._writer.apush(chunk)
                self._built.apply(chunk)
            await self._writer.aflush()
        except (StreamCancelledError, StreamClosedError):
            # The stream itself was stopped: what was pushed last is dropped.
            message = await stored_message(self._streams, self._record)
            self._built = Accumulator(self._record.message_id, base=message)
        except (StreamFencedError, StreamUnavailableError) as error:
            logger.warning("%s: %s", self._name, error)

    async def _kept(self) -> UIMessage | None:
        if self._built.empty or self._agent is None:
            return None
        sanitize = self._agent.sanitize_message
        message: UIMessage = await hooks.call(sanitize, self._built.message)
        return message

    async def _settle(self, ending: Ending) -> bool:
        """End the turn and its stream together; False when it was not ours."""
        while True:
            try:
                return await self._settle_once(ending)
            except (queue.Lost, StreamFencedError):
                logger.warning("%s was taken over; its end is not ours", self._name)
                return False
            except StreamUnavailableError as error:
                # Until the database is back, or somebody else took the turn.
                logger.warning("%s cannot end yet: %s", self._name, error)

    async def _settle_once(self, ending: Ending) -> bool:
        record, wake_key = self._record, self._ref.wake_key

        def commit() -> None:
            ends.finish(record, wake_key, ending)

        if self._writer is None:
            return await door.run(ends.finish_alone, record, wake_key, ending)
        if ending.status is TurnStatus.COMPLETED:
            settled = await self._writer.aclose(commit=commit)
        else:
            aborted = ending.status is TurnStatus.ABORTED
            reason = CANCELLED if aborted else ending.error
            # A conversation that was cleared keeps no log of what it said.
            discard = aborted and await door.run(ends.outdated, record)
            settled = await self._writer.aerror(reason, commit=commit, discard=discard)
        if not settled:
            # Somebody settled the stream by hand; the turn still has to end.
            return await door.run(ends.finish_alone, record, wake_key, ending)
        return True

    async def _respond(self, ending: Ending) -> None:
        if self._writer is None or self._agent is None:
            return
        errored = ending.status is TurnStatus.ERRORED
        result = TurnResult(
            request_id=self._record.request_id,
            status="error" if errored else ending.status.value,
            message=ending.message,
            continuation=self._record.continuation,
            error=ending.error,
        )
        try:
            await hooks.call(self._agent.on_chat_response, result)
        except Exception:
            logger.exception("on_chat_response of %s failed", self._name)

    @property
    def _name(self) -> str:
        return f"turn {self._record.request_id!r} of {self._ref.agent}"
