"""Looks after turns in a process that serves: one timer for each event loop.

It starts with the first chat that the loop serves and needs no lifespan of the
server. Once every ``SWEEP_INTERVAL``, in one query, it finds turns whose runner
died and turns that were submitted where no loop runs (a command, a task, WSGI).
Between two looks there is no task, no thread and no connection of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import weakref
from collections.abc import Callable

from .. import conf
from ..wake import get_waker
from . import agents, backlog, calls, door, recovery
from .agents import Kind
from .records import ConversationRef
from .runner import get_runner

logger = logging.getLogger("django_streams.turns")

_MOST = 50
"""Rows of one look; the next look finds the rest."""

_YOUNG = 1.0
"""Seconds for which a turn is left to the process that took it; unless a wake
says that none runs it."""


class Patrol:
    """The looks of one loop, from :meth:`start` until the loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._called = False
        self._away = False
        self.unlisten: Callable[[], None] = lambda: None

    def start(self) -> None:
        self.unlisten = get_waker().listen(calls.QUEUE_KEY, _waker_callback(self))
        self._wait()

    def call(self) -> None:
        """A turn waits for whoever comes first: look now."""
        if not self._called:
            self._called = True
            if self._task is None:
                self._begin()

    def _wait(self) -> None:
        # Not in step: processes that started together would ask together.
        pause = conf.get().SWEEP_INTERVAL * random.uniform(0.8, 1.0)  # noqa: S311
        self._timer = self._loop.call_later(pause, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._task = self._loop.create_task(
            self._round(), context=contextvars.Context()
        )

    async def _round(self) -> None:
        try:
            while True:
                called, self._called = self._called, False
                await self._look(0.0 if called else _YOUNG)
                self._away = False
                if not self._called:
                    break
        except Exception as error:
            # Once an outage.
            if not self._away:
                logger.warning("could not look for turns left behind: %s", error)
            self._away = True
        finally:
            self._task = None
            self._wait()

    async def _look(self, older_than: float) -> None:
        runner = get_runner()
        here = agents.names(Kind.INPROCESS, Kind.DJANGO_TASKS, Kind.CELERY)
        look = await door.run(
            backlog.look, here, agents.names(), limit=_MOST, older_than=older_than
        )
        for found in look.lapsed:
            # One of ours is only late with its renewal.
            if not runner.runs(found.ref):
                await self._recover(found.ref)
        for found in look.waiting:
            runner.kick(found.ref)

    async def _recover(self, ref: ConversationRef) -> None:
        try:
            if await recovery.sweep(ref):
                again(ref)
        except Exception:
            logger.exception("a lapsed turn of %s was not recovered", ref.agent)


def again(ref: ConversationRef) -> None:
    """A turn was recovered: it, or the next one, may run now."""
    get_runner().kick(ref)
    if agents.kind(ref.agent) is Kind.WORKER:
        get_waker().wake(calls.QUEUE_KEY)


def _waker_callback(patrol: Patrol) -> Callable[[], None]:
    # Weakly: the process's waker outlives loops, and must not keep them.
    mine, loop = weakref.ref(patrol), weakref.ref(patrol._loop)

    def woken() -> None:
        patrol, running = mine(), loop()
        if patrol is not None and running is not None and not running.is_closed():
            running.call_soon_threadsafe(patrol.call)

    return woken


_patrols: dict[asyncio.AbstractEventLoop, Patrol] = {}


def start() -> None:
    """Look after turns on the running loop from now on; again: does nothing.

    Not where everything shares one connection: a test's transaction is its own.
    """
    loop = asyncio.get_running_loop()
    if loop in _patrols or conf.get().SINGLE_CONNECTION:
        return
    for other in [known for known in _patrols if known.is_closed()]:
        _patrols.pop(other).unlisten()
    patrol = _patrols[loop] = Patrol(loop)
    patrol.start()
