"""``manage.py run_turns``: run the queued turns of the project's agents."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from ... import conf, gc
from ...store.pool import get_pool
from ...turns import agents, door
from ...turns.worker import Health, Job, Worker
from ...wake import get_waker
from .gc_streams import positive, seconds

FIRST_GC = 60.0
"""The first collection comes within a minute, spread, so that workers that are
restarted more often than every ``GC_INTERVAL`` collect all the same."""


def interval(text: str) -> float:
    value = seconds(text)
    if not value:
        raise ArgumentTypeError("0 is not an interval")
    return value


class Command(BaseCommand):
    help = (
        "Runs queued turns of the project's agents, recovers turns whose process "
        "died, and collects old streams. Start any number, on any machine. The "
        "first SIGTERM or SIGINT lets running turns finish, a second one gives "
        "them back at once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--concurrency",
            type=positive,
            default=20,
            metavar="N",
            help="turns at a time in this process (default: %(default)d)",
        )
        parser.add_argument(
            "--agent",
            action="append",
            metavar="NAME",
            help="only turns of this agent; may be given several times",
        )
        parser.add_argument(
            "--grace",
            type=seconds,
            default=20.0,
            metavar="SECONDS",
            help="how long running turns may go on after the first signal; then "
            "they are given back (default: %(default)g)",
        )
        parser.add_argument(
            "--health-interval",
            type=interval,
            default=30.0,
            metavar="SECONDS",
            help="a line of health on standard output so often (default: %(default)g)",
        )
        parser.add_argument(
            "--health-file",
            type=Path,
            metavar="PATH",
            help="write the same as JSON into this file; while the database is away "
            "the file keeps its age",
        )
        parser.add_argument(
            "--no-gc",
            action="store_true",
            help="leave the collection of old streams to others",
        )

    def handle(self, **options: Any) -> None:
        try:
            known = list(agents.discover())
        except (ImproperlyConfigured, ValueError) as error:
            raise CommandError(str(error)) from error
        names: list[str] = options["agent"] or known
        unknown = sorted(set(names) - set(known))
        if unknown or not known:
            what = f"no agent is called {', '.join(unknown)}" if unknown else "no agent"
            raise CommandError(
                f"{what}; known: {', '.join(known) or 'none'}. Route the agents in "
                f"ASGI_APPLICATION, or name their classes in {conf.NAME}['AGENTS']"
            )
        # Threads of the worker have connections of their own.
        connections.close_all()
        asyncio.run(self._work(names, options))
        # What was released is told to others before this process is gone.
        get_waker().close()
        get_pool().close()
        self._say("stopped")

    async def _work(self, names: list[str], options: dict[str, Any]) -> None:
        worker = Worker(
            names,
            concurrency=options["concurrency"],
            grace=options["grace"],
            jobs=list(_jobs(not options["no_gc"])),
        )
        _on_signals(worker)
        health = asyncio.create_task(self._tell(worker, options))
        self._say(f"running turns of {', '.join(names)}")
        try:
            await worker.run()
        finally:
            health.cancel()
            await asyncio.wait({health})

    async def _tell(self, worker: Worker, options: dict[str, Any]) -> None:
        file: Path | None = options["health_file"]
        while True:
            try:
                health = await worker.health()
                self._say(line(health))
                if file is not None:
                    await asyncio.to_thread(write, file, health)
            except Exception as error:
                self._say(f"unhealthy: {error}")
            await asyncio.sleep(options["health_interval"])

    def _say(self, text: str) -> None:
        self.stdout.write(f"run_turns: {text}")
        self.stdout.flush()


def line(health: Health) -> str:
    """Health for people and log collectors: ``key=value`` pairs."""
    ages = {"oldest": health.oldest, "swept": health.swept}
    pairs = {
        "running": str(health.running),
        "queued": str(health.queued),
        **{k: "-" if age is None else f"{age:.1f}s" for k, age in ages.items()},
        "finished": str(health.finished),
    }
    text = " ".join(f"{key}={value}" for key, value in pairs.items())
    return f"{text} stopping" if health.stopping else text


def write(file: Path, health: Health) -> None:
    """Replace *file* by the JSON of *health*; readers never see half of it."""
    values = {"pid": os.getpid(), "time": time.time(), **asdict(health)}
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    beside.write_text(json.dumps(values) + "\n", encoding="utf-8")
    beside.replace(file)


def _on_signals(worker: Worker) -> None:
    """First signal: stop; second: release; from the third on: Python's own."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    got = 0

    def on_signal() -> None:
        nonlocal got
        got += 1
        if got == 1:
            worker.stop()
        else:
            worker.release()
            for number in numbers:
                loop.remove_signal_handler(number)

    for number in numbers:
        loop.add_signal_handler(number, on_signal)


def _jobs(collect: bool) -> Iterator[Job]:
    settings = conf.get()
    using = settings.DATABASE

    async def settle() -> None:
        await door.run(gc.settle, using=using)

    async def gather() -> None:
        await asyncio.to_thread(_collect, using)

    every = settings.SWEEP_INTERVAL
    yield Job("the sweep of streams", settle, every=every, first=every)
    if collect and settings.GC_INTERVAL is not None:
        every = settings.GC_INTERVAL
        first = random.uniform(0, min(FIRST_GC, every))  # noqa: S311
        yield Job("the collection of old streams", gather, every=every, first=first)


def _collect(using: str) -> None:
    # In a thread of its own, for it may take minutes; its connection ends with
    # it.
    try:
        gc.collect(using=using)
    finally:
        connections.close_all()
