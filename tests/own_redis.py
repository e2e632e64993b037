"""A Redis of a test's own, to stop, freeze and count connections of."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, Self

import redis
from django.utils.module_loading import import_string

from tests import services

WITHIN = 10.0
"""Seconds in which a Redis on this machine must come up or go down."""

LAYERS = {
    "redis": "channels_redis.core.RedisChannelLayer",
    "redis pubsub": "channels_redis.pubsub.RedisPubSubChannelLayer",
}

SETTINGS = {
    "redis": "tests.settings_redis",
    "redis pubsub": "tests.settings_redis_pubsub",
}
"""The test settings that use each; ``DS_TEST_REDIS_URL`` says which Redis."""


def redis_layer(kind: str, url: str, prefix: str) -> Callable[[], Any]:
    """Makes a layer of *kind*, one of ``LAYERS``, at each call."""
    return partial(import_string(LAYERS[kind]), hosts=[url], prefix=prefix)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class OwnRedis:
    """``redis-server`` on 127.0.0.1, without persistence; runs inside ``with``."""

    def __init__(self) -> None:
        services.redis_server.require()
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it on its port and wait until it answers."""
        program = services.program("redis-server")
        assert program is not None
        options = f"--port {self.port} --bind 127.0.0.1 --appendonly no".split()
        self._process = subprocess.Popen(
            [program, *options, "--save", "", "--dir", tempfile.gettempdir()],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + WITHIN
        while not self._answers():
            assert self._process.poll() is None, "redis-server ended at once"
            assert time.monotonic() < deadline, f"no Redis within {WITHIN} s"
            time.sleep(0.01)

    def stop(self) -> None:
        """End it; connections break, and nothing is kept."""
        if self._process is not None:
            self.thaw()
            self._process.terminate()
            self._process.wait(WITHIN)
            self._process = None

    def freeze(self) -> None:
        """Stop it from running: connections stay open and are not answered."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again after :meth:`freeze`."""
        self._signal(signal.SIGCONT)

    def command(self, *words: str) -> Any:
        """Send a command over a connection of its own."""
        with redis.Redis(port=self.port) as client:
            return client.execute_command(*words)

    def connections(self) -> int:
        """How many clients are connected, this question's own not counted."""
        return int(self.command("INFO", "clients")["connected_clients"]) - 1

    def connections_ever(self) -> int:
        """How many there have been since it started, this one's included."""
        return int(self.command("INFO", "stats")["total_connections_received"])

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def _answers(self) -> bool:
        try:
            return bool(self.command("PING"))
        except redis.ConnectionError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
