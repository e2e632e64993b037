"""Runs the queued turns of this process's agents, as detached tasks of a loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable

from .. import conf
from ..exceptions import StreamUnavailableError
from . import conversations, door, queue
from .records import ConversationRef, TurnRecord
from .run import Agent, Run, new_message_id

logger = logging.getLogger("django_streams.turns")

_agents: dict[str, Callable[[], Agent]] = {}


def register(name: str, make: Callable[[], Agent]) -> None:
    """Let this process run the turns of the agent *name*.

    *make* gives an instance for one turn. Raises ``ValueError`` when another
    agent has the name: one of them would get the other's conversations.
    """
    known = _agents.setdefault(name, make)
    if known is not make:
        raise ValueError(
            f"two agents are called {name!r}: {known!r} and {make!r}; "
            "set agent_name on one of them"
        )


class Runner:
    """The conversations whose queue this loop is working off."""

    def __init__(self) -> None:
        # The strong references that keep detached tasks alive.
        self._drains: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def kick(self, ref: ConversationRef) -> None:
        """There may be a queued turn: run it unless another turn runs.

        Returns at once. The task has a context of its own and outlives the
        request or socket that kicked it.
        """
        if ref.agent not in _agents:
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
        while ref.key in self._again:
            self._again.discard(ref.key)
            while (turn := await self._claim(ref)) is not None:
                try:
                    await Run(ref, turn, _agents[ref.agent]).run()
                except Exception:
                    # Its lease lapses, and whoever follows it ends it.
                    logger.exception("turn %r was given up", turn.request_id)

    async def _claim(self, ref: ConversationRef) -> TurnRecord | None:
        while True:
            try:
                pk = await door.run(conversations.find, ref)
                if pk is None:
                    return None
                return await door.run(
                    queue.claim,
                    pk,
                    message_id=new_message_id(),
                    lease=conf.get().TURN_LEASE,
                )
            except StreamUnavailableError as error:
                # A turn is queued, and nobody will tell us again.
                logger.warning("the queue of %s waits: %s", ref.agent, error)
                await asyncio.sleep(conf.get().POLL_MAX)


_runners: dict[asyncio.AbstractEventLoop, Runner] = {}


def get_runner() -> Runner:
    """The runner of the running loop."""
    loop = asyncio.get_running_loop()
    runner = _runners.get(loop)
    if runner is None:
        for other in [known for known in _runners if known.is_closed()]:
            del _runners[other]
        runner = _runners[loop] = Runner()
    return runner
