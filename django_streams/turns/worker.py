"""A process that runs queued turns of all conversations, and sweeps.

Any number of workers share the queue: every decision is the database's, and a
worker only asks. It is woken, and polls besides.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from .. import conf
from ..wake import get_waker
from . import agents, backlog, calls, door, offers, recovery, runner
from .agents import Make
from .backlog import Backlog, Found, Look
from .records import ConversationRef
from .responses import get_responses
from .run import Run

logger = logging.getLogger("django_streams.turns")

Take: TypeAlias = Callable[[ConversationRef, int, Make], Awaitable[Run | None]]

_MOST = 100
"""Rows of one look; the next look finds the rest."""

_LOSSES = 3
"""Claims in which another was first: what was seen is too old then."""

_SWEEPS = 8
"""Recoveries under way at a time: a machine that fell leaves many at once."""

_LAST_WORDS = 5.0
"""Seconds in which released turns must have been given up: then the process
ends all the same, and their leases lapse by themselves."""


@dataclass(frozen=True, slots=True)
class Job:
    """Something a worker does again and again beside its turns."""

    name: str
    work: Callable[[], Awaitable[object]]
    every: float
    first: float
    """Seconds until the first time."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker is doing; ages in seconds."""

    running: int
    """Turns that this worker runs."""
    finished: int
    """Turns that it has run."""
    stopping: bool
    queued: int
    """Turns of its agents that wait, whoever will run them."""
    oldest: float | None
    """Since the submit of the oldest turn that could run; None: none."""
    swept: float | None
    """Since it last looked for lapsed turns; None: it has not been able to."""


class Worker:
    """Runs up to *concurrency* turns at a time. Use once.

    *names* are the agents it works for; those whose turns come by a task queue
    it only sweeps. *grace* is how many seconds running turns have to finish
    after :meth:`stop`; then, or after :meth:`release`, they are given back.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        concurrency: int,
        grace: float,
        jobs: Sequence[Job] = (),
    ) -> None:
        self._names = list(names)
        self._mine = [n for n in names if not agents.kind(n).by_task]
        self._by_task = [n for n in names if agents.kind(n).by_task]
        self._concurrency = concurrency
        self._grace = grace
        self._jobs = jobs
        self._running: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, Run] = {}
        """What the running tasks run."""
        self._sweeping: dict[str, asyncio.Task[None]] = {}
        self._finished = 0
        self._crowd = 0
        self._fruitless = 0
        self._swept: float | None = None
        self._news = asyncio.Event()
        self._stop = asyncio.Event()
        self._release = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Claim nothing more; let what runs finish within the grace time."""
        self._stop.set()
        self._news.set()

    def release(self) -> None:
        """Give back at once what runs; another process goes on with it."""
        self.stop()
        self._release.set()

    async def run(self) -> None:
        """Work until told to stop and nothing runs here any more.

        Cancelled: nothing is settled and nothing released; leases lapse.
        """
        unlisten = get_waker().listen(calls.QUEUE_KEY, self._woken)
        jobs = [self._spawn(self._repeat(job)) for job in self._jobs]
        try:
            while not self._stop.is_set():
                await self._round()
            await self._finish()
        finally:
            unlisten()
            sweeps = list(self._sweeping.values())
            for task in (*jobs, *sweeps):
                task.cancel()
            await asyncio.gather(*jobs, *sweeps, return_exceptions=True)

    async def health(self) -> Health:
        """Raises what the database raises while it is away."""
        waiting: Backlog = await door.run(backlog.measure, self._mine)
        swept = self._swept
        return Health(
            running=len(self._running),
            finished=self._finished,
            stopping=self._stop.is_set(),
            queued=waiting.queued,
            oldest=waiting.oldest,
            swept=None if swept is None else time.monotonic() - swept,
        )

    # Claiming

    def _woken(self) -> None:
        # From any thread. A loop that is gone has no worker.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def _round(self) -> None:
        """Look once, act on it, and wait for news or the next look."""
        self._news.clear()
        claimed = lost = 0
        try:
            claimed, lost = await self._look()
        except Exception as error:
            logger.warning("the worker could not look at the queue: %s", error)
        settings = conf.get()
        pause = settings.SWEEP_INTERVAL
        if self._free > 0:
            pause = min(pause, settings.POLL_MAX)
            if claimed:
                self._fruitless = 0
                # What was seen is old news, and there may be more of it.
                pause = 0.0
            elif lost:
                pause = min(pause, settings.POLL_MIN * 2**self._fruitless)
                self._fruitless = min(self._fruitless + 1, 16)
        if not pause:
            return
        try:
            async with asyncio.timeout(pause):
                await self._news.wait()
        except TimeoutError:
            pass

    @property
    def _free(self) -> int:
        return self._concurrency - len(self._running)

    async def _look(self) -> tuple[int, int]:
        """How many turns were claimed, and how many others were first to claim."""
        waiting_of = self._mine if self._free > 0 else []
        look: Look = await door.run(
            backlog.look, [*waiting_of, *self._by_task], self._names, limit=_MOST
        )
        self._swept = time.monotonic()
        for found in look.lapsed:
            self._sweep(found)
        claimed = lost = 0
        for found in self._in_line(look.waiting):
            if found.ref.agent in self._by_task:
                offers.offer_soon(found.ref)
            elif self._free > 0 and lost < _LOSSES and not self._stop.is_set():
                if await self._take(found, runner.claim):
                    claimed += 1
                else:
                    lost += 1
        self._crowd = min(2 * self._crowd + 2, _MOST) if lost else self._crowd // 2
        return claimed, lost

    def _in_line(self, waiting: Sequence[Found]) -> Sequence[Found]:
        """First come first served; but where others keep being first, each takes
        one of the foremost by chance, or all would go for the same."""
        front = list(waiting[: self._crowd])
        random.shuffle(front)
        return [*front, *waiting[self._crowd :]]

    async def _take(self, found: Found, take: Take) -> bool:
        ref = found.ref
        make = agents.find(ref.agent)
        if make is None or ref.key in self._running:
            return False
        run = await take(ref, found.conversation_pk, make)
        if run is None:
            # Another worker was first.
            return False
        self._runs[ref.key] = run
        self._running[ref.key] = self._spawn(self._attend(ref, run))
        return True

    async def _attend(self, ref: ConversationRef, run: Run) -> None:
        try:
            await runner.attend(ref, run)
        except asyncio.CancelledError:
            # Given back: whoever follows or sweeps need not wait for the poll.
            get_waker().wake(ref.wake_key)
            get_waker().wake(calls.QUEUE_KEY)
            raise
        finally:
            del self._running[ref.key], self._runs[ref.key]
            self._finished += 1
            # The next turn of this conversation may run now.
            self._news.set()

    # Sweeping

    def _sweep(self, found: Found) -> None:
        key = found.ref.key
        if key in self._running or key in self._sweeping:
            # Ours, and only late with its renewal.
            return
        if len(self._sweeping) < _SWEEPS:
            self._sweeping[key] = self._spawn(self._recover(found))

    async def _recover(self, found: Found) -> None:
        ref = found.ref
        try:
            if not await recovery.sweep(ref):
                return
            if ref.agent in self._by_task:
                offers.offer_soon(ref)
            elif self._free > 0 and not self._stop.is_set():
                await self._take(found, runner.take)
        except Exception:
            logger.exception("a lapsed turn of %s was not recovered", ref.agent)
        finally:
            del self._sweeping[ref.key]

    # The end

    async def _finish(self) -> None:
        """Wait for what runs; give back what does not end in time."""
        if self._running and not self._release.is_set():
            logger.info(
                "stopping: %d turns have %g s to finish",
                len(self._running),
                self._grace,
            )
            released = self._spawn(self._released())
            end = self._loop.time() + self._grace
            while self._running and not released.done():
                left = end - self._loop.time()
                if left <= 0:
                    break
                await asyncio.wait(
                    {*self._running.values(), released},
                    timeout=left,
                    return_when="FIRST_COMPLETED",
                )
            released.cancel()
        for key, task in self._running.items():
            self._runs[key].gives_back = True
            task.cancel()
        try:
            async with asyncio.timeout(_LAST_WORDS):
                while self._running:
                    await asyncio.wait(list(self._running.values()))
                await get_responses().idle()
        except TimeoutError:
            logger.warning("%d turns are left to their leases", len(self._running))

    async def _released(self) -> None:
        await self._release.wait()

    # Beside

    async def _repeat(self, job: Job) -> None:
        pause = job.first
        while True:
            await asyncio.sleep(pause)
            pause = job.every
            try:
                await job.work()
            except Exception:
                logger.exception("%s failed; it is tried again", job.name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._loop.create_task(work, context=contextvars.Context())
