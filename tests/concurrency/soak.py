"""Chats for minutes on end while processes are killed; then the rules must hold.

``make soak`` runs it for ten minutes with 200 conversations at a time; ``SECONDS``
and ``CONVERSATIONS`` make it another. Each conversation asks, loses its network,
comes back to another server, stops now and then, and asks again. Every few
seconds a server or a worker is killed and replaced; the first of each is spared.

It goes in rounds, each with new conversations. After a round all comes to rest
and what every process holds is counted. What the spared held after the first
round they may hold after the last one, and no other process may hold more.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from websockets.exceptions import WebSocketException

from django_streams.conf import Settings
from django_streams.models import Turn
from django_streams.turns import invariants
from tests.databases import Databases
from tests.integration.chatting import MESSAGES, NONE, RESPONSE, RESUMING
from tests.liveserver import LiveServer
from tests.wire.raw import RawTab, visit

from .fleet import APP, WorkerProcess, fleet_env
from .transcripts import inexact
from .vitals import Vitals, floors, table, vital_env

KILL_EVERY = 5.0
ROUNDS = 5
PAUSE = 0.5
"""Seconds between two words: all of it is to fit on a machine of two cores."""

THINK = 100.0
"""Longest pause before a question."""

ONLINE = 20.0
"""Longest time for which a network holds, once it has brought the transcript."""

PATIENCE = 60.0
"""Seconds in which a question is answered, and all comes to rest after a round."""

STOP = 0.01
"""How probably a word is the last that somebody wants."""

LOOK = 5.0
"""Seconds in which what is held is counted again and again: the least of it counts."""

MEMORY = 0.1
"""By what share a process may grow after the first round."""

DEFAULTS = Settings()
"""A kill is met with the leases of a site that sets nothing."""

P = TypeVar("P", LiveServer, WorkerProcess)


@dataclass(frozen=True)
class Named(Generic[P]):
    """A process and the name that it is counted by."""

    name: str
    process: P


@dataclass
class Soak:
    """Two servers and two workers, of which the second ones die."""

    seconds: float
    conversations: int
    stack: ExitStack
    rounds: int = ROUNDS
    kill_every: float = KILL_EVERY
    look: float = LOOK
    think: float = THINK
    pause: float = PAUSE
    lease: float = DEFAULTS.TURN_LEASE
    sweep: float = DEFAULTS.SWEEP_INTERVAL
    replies: int = 0
    kills: int = 0
    refreshes: int = 0
    stops: int = 0
    wrong: list[str] = field(default_factory=list)
    """What nobody may ever see, each in words."""
    held: list[dict[str, Vitals]] = field(default_factory=list)
    """After each round, of each process by its name."""

    def start(self) -> None:
        self._env = fleet_env(
            "postgresql",
            layer="redis",
            lease=self.lease,
            DS_FLEET_SWEEP=str(self.sweep),
        )
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self._folder = Path(folder)
        self._started = 0
        self._servers = [self._server(), self._server()]
        self._workers = [self._worker(), self._worker()]
        self._cookie = visit(self._servers[0].process, "counting", "nothing")

    def run(self) -> None:
        """All rounds; afterwards nothing runs any more."""
        for number in range(self.rounds):
            asyncio.run(self._round(f"round{number}", self.seconds / self.rounds))
            self._come_to_rest()
            pids = {one.name: one.process.pid for one in self._servers}
            pids |= {one.name: one.process.pid for one in self._workers}
            self.held.append(floors(pids, self._folder, self.look))

    def not_flat(self) -> list[str]:
        """What a process holds in the end that was not held after the first round."""
        first, last = self.held[0], self.held[-1]
        spared = self._servers[0].name, self._workers[0].name
        return [
            f"{name} holds {now} of {what}, and {like} held {was} after round 1"
            for name, held in last.items()
            for like in spared
            if like.partition("-")[0] == name.partition("-")[0]
            for what, (was, now) in held.more_than(first[like], MEMORY).items()
        ]

    async def _round(self, name: str, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kill())
            for at in range(self.conversations):
                group.create_task(self._converse(f"{name}-{at}"))

    async def _converse(self, room: str) -> None:
        number = 0
        while await self._think():
            number += 1
            await self._turn(room, f"q{number}")

    async def _think(self) -> bool:
        """Pause; False when the round is over."""
        left = self._end - time.monotonic()
        await asyncio.sleep(max(0.0, min(left, random.uniform(0, self.think))))
        return time.monotonic() < self._end

    async def _turn(self, room: str, request_id: str) -> None:
        words = random.randint(1, 20)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                await self._visit(room, request_id, f"{words} {self.pause}")
                self.replies += 1
                return
            except (OSError, WebSocketException, TimeoutError):
                self.refreshes += 1
        self.wrong.append(f"{request_id} of {room} had no answer in {PATIENCE:g} s")

    async def _visit(self, room: str, request_id: str, question: str) -> None:
        """Ask, or come back to the question; returns when its reply has ended."""
        server = random.choice(self._servers).process
        async with RawTab(server, self._cookie, agent="counting", room=room) as tab:
            seen = await tab.until(MESSAGES, connect=True)
            if f"u-{request_id}" not in [m["id"] for m in seen["messages"]]:
                await tab.ask(question, request_id)
            else:
                probe = {"type": "cf_agent_stream_resume_request", "probeId": "p"}
                await tab.send(probe)
            async with asyncio.timeout(random.uniform(0, ONLINE)):
                await self._follow(tab, request_id)

    async def _follow(self, tab: RawTab, request_id: str) -> None:
        while True:
            frame = await tab.next()
            mine = frame["type"] == RESPONSE and frame["id"] == request_id
            if frame["type"] == NONE or (mine and frame["done"]):
                return
            if frame["type"] == RESUMING:
                ack = {"type": "cf_agent_stream_resume_ack", "id": frame["id"]}
                await tab.send(ack)
            if mine and random.random() < STOP:
                self.stops += 1
                await tab.cancel(request_id)

    async def _kill(self) -> None:
        while time.monotonic() + self.kill_every < self._end:
            await asyncio.sleep(self.kill_every)
            # The new one is not waited for: clients find out who is there.
            if random.random() < 0.5:
                self._workers[1].process.kill()
                self._workers[1] = self._worker()
            else:
                self._servers[1].process.kill()
                self._servers[1] = self._server()
            self.kills += 1

    def _come_to_rest(self) -> None:
        """Wait until every turn has ended, and every lease could be swept."""
        end = time.monotonic() + PATIENCE
        waiting = Turn.objects.using("postgresql").filter(
            status__in=("queued", "running")
        )
        while (count := waiting.count()) and time.monotonic() < end:
            time.sleep(0.1)
        if count:
            self.wrong.append(f"{count} turns did not end in {PATIENCE:g} s")
        time.sleep(self.lease + self.sweep)

    def _worker(self) -> Named[WorkerProcess]:
        name = self._name("worker")
        env = self._env | vital_env(name, self._folder)
        worker = WorkerProcess(env, "--concurrency", "150")
        self.stack.push(worker)
        return Named(name, worker)

    def _server(self) -> Named[LiveServer]:
        name = self._name("server")
        server = LiveServer(APP, env=self._env | vital_env(name, self._folder))
        self.stack.push(server)
        return Named(name, server)

    def _name(self, kind: str) -> str:
        self._started += 1
        return f"{kind}-{self._started}"


def violations(soak: Soak) -> list[str]:
    """Everything that is wrong after a soak, in words."""
    rules = invariants.violations(alias="postgresql", grace=soak.lease + soak.sweep)
    return [
        *soak.wrong,
        *(f"{one.rule}: {one.what}" for one in rules),
        *inexact("postgresql"),
        *soak.not_flat(),
    ]


def main() -> int:
    """The long form, on a database of its own; 0 when every rule holds."""
    seconds = float(os.environ.get("SECONDS", "600"))
    conversations = int(os.environ.get("CONVERSATIONS", "200"))
    databases = Databases()
    databases.ensure("postgresql")
    try:
        with ExitStack() as stack:
            soak = Soak(seconds, conversations, stack)
            soak.start()
            soak.run()
            found = violations(soak)
    finally:
        databases.drop()
    for number, held in enumerate(soak.held, 1):
        print(f"at rest after round {number}")
        print(table(held))
    print(
        f"{soak.replies} replies, {soak.refreshes} refreshes, {soak.stops} stops, "
        f"{soak.kills} kills"
    )
    for one in found:
        print(one)
    return 1 if found else 0
