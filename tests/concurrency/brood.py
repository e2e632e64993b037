"""Many processes at once, forked from one that has loaded Django already.

::

    def append_some(ready: Ready, alias: str, count: int) -> list[int]:
        writer = Streams(using=alias).open("a")
        ready()                                  # and wait for the word
        return [writer.append(i) for i in range(count)]

    with Brood() as brood:
        results = brood.run(*[(append_some, {"alias": alias, "count": 9})] * 4)

A process of its own takes most of a second of a core to load, a fork of one a
hundredth. The mother has no connection and no second thread. Arguments and
results are JSON; a coroutine function gets a loop of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from types import TracebackType
from typing import Any, NoReturn, Self

from tests import process
from tests.process import Child, ChildError

PATIENCE = 45.0
"""Seconds for what takes ten on a machine that has nothing else to do."""

Ready = Callable[..., None]
"""Says that this process is ready, and waits for the word; with ``wait=False``
it goes on at once."""

Job = tuple[Callable[..., Any], dict[str, Any]]


class Brood:
    """Runs functions in forks of one child; leaving the block ends them all."""

    def __init__(self, env: dict[str, str] | None = None) -> None:
        self._child = Child(_mother, env=env)

    def start(self, jobs: Sequence[Job]) -> None:
        """Returns once every process is ready."""
        self._child.say(
            [[f.__module__, f.__qualname__, arguments] for f, arguments in jobs]
        )
        assert self._child.hear() == "ready"

    def go(self) -> None:
        self._child.say("go")

    def results(self, timeout: float = PATIENCE) -> list[Any]:
        """What the functions returned; :class:`ChildError` if one raised."""
        results = []
        for result, error in self.outcomes(timeout):
            if error is not None:
                raise ChildError(error)
            results.append(result)
        return results

    def outcomes(self, timeout: float = PATIENCE) -> list[tuple[Any, str | None]]:
        """Of each function what it returned, and how it failed or was killed."""
        return [(result, error) for result, error in self._child.hear(timeout)]

    def run(self, *jobs: Job, timeout: float = PATIENCE) -> list[Any]:
        """All of it, with nothing to do in between."""
        self.start(jobs)
        self.go()
        return self.results(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.__exit__(kind, error, trace)


def _mother() -> None:
    # Her end of it closes with her, and they end when it does.
    life_out, life_in = os.pipe()
    while True:
        jobs = [
            (getattr(import_module(module), name), arguments)
            for module, name, arguments in process.hear()
        ]
        ready_out, ready_in = os.pipe()
        go_out, go_in = os.pipe()
        born = []
        for job in jobs:
            result_out, result_in = os.pipe()
            if pid := os.fork():
                os.close(result_in)
                born.append((result_out, pid))
                continue
            os.close(life_in)
            threading.Thread(target=_die_with, args=(life_out,), daemon=True).start()
            _work(job, _Word(ready_in, go_out), result_in)
        os.close(ready_in)
        os.close(go_out)
        with os.fdopen(ready_out, "rb") as ready:
            # One that failed closes its end without a word; its result tells.
            ready.read(len(jobs))
        process.say("ready")
        assert process.hear() == "go"
        os.write(go_in, b"g" * len(jobs))
        process.say([_collect(*one) for one in born])
        os.close(go_in)


class _Word:
    def __init__(self, ready: int, go: int) -> None:
        self._ready, self._go = ready, go

    def __call__(self, *, wait: bool = True) -> None:
        os.write(self._ready, b"r")
        os.close(self._ready)
        if wait:
            os.read(self._go, 1)


def _work(job: Job, ready: Ready, result_in: int) -> NoReturn:
    function, arguments = job
    try:
        result = function(ready, **arguments)
        if asyncio.iscoroutine(result):
            result = asyncio.run(result)
        said = [result, None]
    except BaseException:
        said = [None, traceback.format_exc()]
    with os.fdopen(result_in, "wb") as pipe:
        pipe.write(json.dumps(said).encode())
    os._exit(0)


def _collect(result_out: int, pid: int) -> list[Any]:
    with os.fdopen(result_out, "rb") as pipe:
        data = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said: list[Any] = json.loads(data) if data else [None, f"ended with {status}"]
    return said


def _die_with(life_out: int) -> None:
    os.read(life_out, 1)
    os._exit(1)
