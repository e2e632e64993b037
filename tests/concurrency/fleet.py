"""Servers and workers over one database, to start, stop and kill.

::

    env = fleet_env("postgresql", layer="redis", lease=1.0)
    with WorkerProcess(env) as worker, LiveServer(APP, env=env) as server:
        ...
        worker.stop()          # SIGTERM, and its exit code
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tests.liveserver import LiveServer, Server
from tests.sizes import ROOT

APP = "tests.concurrency.fleet_asgi:application"
TIMEOUT = 20.0
"""Seconds for a start and for an orderly end."""


def fleet_env(
    alias: str = "default",
    *,
    layer: str = "",
    runner: str = "worker",
    lease: float = 1.0,
    **others: str,
) -> dict[str, str]:
    """The environment of a fleet's processes."""
    return {
        "DJANGO_SETTINGS_MODULE": "tests.concurrency.fleet_settings",
        "DS_FLEET_DATABASE": alias,
        "DS_FLEET_LAYER": layer,
        "DS_FLEET_RUNNER": runner,
        "DS_FLEET_LEASE": str(lease),
        **others,
    }


class WorkerProcess:
    """``manage.py run_turns`` until the block ends; warnings are errors there."""

    def __init__(self, env: dict[str, str], *options: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (by __exit__)
        command = ["manage.py", "run_turns", "--health-interval", "0.2", *options]
        self._process = subprocess.Popen(
            # Connections of threads that end with the process are not closed.
            [
                sys.executable,
                *["-W", "error", "-W", "ignore::ResourceWarning"],
                *command,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | env,
        )
        self.pid = self._process.pid

    def wait_until_ready(self) -> None:
        self.wait_for("swept=0.")

    def wait_for(self, text: str, *, after: int = 0, times: int = 1) -> None:
        """Return when the worker has printed *text*, so many *times* behind that
        much of its log."""
        deadline = time.monotonic() + TIMEOUT
        while self.log()[after:].count(text) < times:
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, f"no {text!r} in\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait for the end; the exit code."""
        try:
            return self._process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs\n{self.log()}") from None

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal()
        return self.wait()

    def kill(self) -> None:
        """``kill -9``; returns when the process is gone."""
        self.signal(signal.SIGKILL)
        self._process.wait(TIMEOUT)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        """Everything it printed so far."""
        at = os.pread(self._log.fileno(), 1 << 26, 0)
        return at.decode(errors="replace")

    def __enter__(self) -> Self:
        try:
            self.wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.alive:
            self.kill()
        self._log.close()


def start_workers(
    env: dict[str, str], options: Sequence[str], count: int, stack: ExitStack
) -> list[WorkerProcess]:
    """Several at once, for each takes a second of a core to load; they run until
    *stack* closes."""
    workers = []
    for _ in range(count):
        workers.append(worker := WorkerProcess(env, *options))
        stack.push(worker)
    for worker in workers:
        worker.wait_until_ready()
    return workers


def start_servers(
    env: dict[str, str], server: Server, count: int, stack: ExitStack
) -> list[LiveServer]:
    """Several at once; they run until *stack* closes."""
    servers = []
    for _ in range(count):
        servers.append(one := LiveServer(APP, server=server, env=env))
        stack.push(one)
    for one in servers:
        one.wait_until_ready()
    return servers
