"""Runs the queued turns of this process's agents, as detached tasks of a loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import secrets
import string
import time

from .. import conf
from ..exceptions import StreamUnavailableError
from . import agents, calls, conversations, door, offers, queue, recovery
from .agents import Make
from .lease import Taken
from .records import ConversationRef
from .run import Run

logger = logging.getLogger("django_streams.turns")

_BASE36 = string.digits + string.ascii_lowercase


def new_message_id() -> str:
    """An id in the form that the official server gives its replies."""
    tail = "".join(secrets.choice(_BASE36) for _ in range(9))
    return f"assistant_{time.time_ns() // 1_000_000}_{tail}"


class Runner:
    """The conversations whose queue this loop is working off."""

    def __init__(self) -> None:
        # The strong references that keep detached tasks alive.
        self._drains: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def kick(self, ref: ConversationRef) -> None:
        """There may be a queued turn: see that it runs unless another one does.

        Here, if this process is to run it. Returns at once; the task has a
        context of its own and outlives the request or socket that kicked it.
        """
        kind = agents.kind(ref.agent)
        if kind.by_task:
            offers.offer_soon(ref)
        if kind is not agents.Kind.INPROCESS or agents.find(ref.agent) is None:
            return
        self._again.add(ref.key)
        if ref.key in self._drains:
            return
        task = asyncio.get_running_loop().create_task(
            self._drain(ref), context=contextvars.Context()
        )
        self._drains[ref.key] = task
        task.add_done_callback(lambda done: self._drained(ref, done))

    def runs(self, ref: ConversationRef) -> bool:
        """Whether this loop is working off the conversation's queue."""
        return ref.key in self._drains

    def _drained(self, ref: ConversationRef, task: asyncio.Task[None]) -> None:
        del self._drains[ref.key]
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            logger.error("the queue of %s stopped", ref.agent, exc_info=error)
        elif ref.key in self._again:
            # Kicked after the task's last look and before it was over.
            self.kick(ref)

    async def _drain(self, ref: ConversationRef) -> None:
        make = agents.find(ref.agent)
        assert make is not None
        while ref.key in self._again:
            self._again.discard(ref.key)
            while (run := await self._claim(ref, make)) is not None:
                await attend(ref, run)

    async def _claim(self, ref: ConversationRef, make: Make) -> Run | None:
        while True:
            try:
                pk = await door.run(conversations.find, ref)
                if pk is None:
                    return None
                run = await take(ref, pk, make)
                if run is None:
                    self._come_back(ref, await door.run(queue.due_in, pk))
                return run
            except StreamUnavailableError as error:
                # A turn is queued, and nobody will tell us again.
                logger.warning("the queue of %s waits: %s", ref.agent, error)
                await asyncio.sleep(conf.get().POLL_MAX)

    def _come_back(self, ref: ConversationRef, seconds: float | None) -> None:
        """Look again when the next turn's time has come, if it has one."""
        if seconds is not None:
            # Not sooner: this loop's clock may be a little ahead of the database's.
            loop = asyncio.get_running_loop()
            loop.call_later(max(seconds, conf.get().POLL_MIN), self.kick, ref)


async def take(ref: ConversationRef, pk: int, make: Make) -> Run | None:
    """What is to be run next of the conversation with the row *pk*: a turn that
    lost its runner, or the oldest queued one; None: another process runs it.

    Cancelled: a turn may be ours all the same, and its lease lapses.
    """
    if (run := await recovery.take_up(ref, make)) is not None:
        return run
    return await claim(ref, pk, make)


async def claim(ref: ConversationRef, pk: int, make: Make) -> Run | None:
    """As :func:`take`, of queued turns only."""
    turn = await door.run(
        queue.claim, pk, message_id=new_message_id(), lease=conf.get().TURN_LEASE
    )
    return None if turn is None else Run(ref, Taken(turn, None), make)


async def attend(ref: ConversationRef, run: Run) -> None:
    """Run to the end. What fails is logged: the lease lapses, and whoever meets
    the turn goes on with it."""
    try:
        await run.run()
    except Exception:
        logger.exception("a turn of %s was given up", ref.agent)


_runners: dict[asyncio.AbstractEventLoop, Runner] = {}


def get_runner() -> Runner:
    """The runner of the running loop."""
    loop = asyncio.get_running_loop()
    runner = _runners.get(loop)
    if runner is None:
        for other in [known for known in _runners if known.is_closed()]:
            del _runners[other]
        runner = _runners[loop] = Runner()
        calls.serve(loop, runner.kick)
    return runner
