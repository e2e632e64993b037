"""Run a function in another Python process, talk with it, kill it.

::

    def append_many(alias: str, count: int) -> None:    # in a tests module
        writer = Streams(using=alias).open("a")
        process.say("ready")
        process.hear()                                   # wait for the word
        ...

    with Child(append_many, alias="postgresql", count=100) as child:
        assert child.hear() == "ready"
        child.say("go")
        child.kill()                                     # kill -9, by its pid

The child loads the same settings and so works on the run's databases. What
both sides say is JSON, a line each; a coroutine function gets its own loop.
Warnings are errors there too.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 20.0
"""Seconds to wait for a word or for the end; a hang must not stop the suite."""


class ChildError(AssertionError):
    """The child ended early or badly; the text has what it wrote to stderr."""


class Child:
    """A Python process that runs ``function(**arguments)``.

    *function* is a function at the top of a module, *arguments* are JSON;
    *env* is added to this process's environment. Leaving the ``with`` block
    kills a child that still runs, and raises :class:`ChildError` for one that
    failed by itself.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        /,
        *,
        env: dict[str, str] | None = None,
        **arguments: Any,
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  (by __exit__)
        self._killed = False
        self._unread = b""
        name = f"{function.__module__}:{function.__qualname__}"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.process", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
            env=os.environ | (env or {}),
            bufsize=0,
        )
        self.pid = self._process.pid
        self.say(arguments)

    def say(self, value: Any) -> None:
        """Send *value*; the child's :func:`hear` returns it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")

    def hear(self, timeout: float = TIMEOUT) -> Any:
        """The next value the child said; :class:`ChildError` if none comes."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._unread:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([self._process.stdout], [], [], left)[0]:
                raise ChildError(f"no word for {timeout} s\n{self.stderr()}")
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                code = self._process.wait(timeout)
                raise ChildError(f"ended with {code}\n{self.stderr()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)

    def kill(self) -> None:
        """``kill -9``; returns when the process is gone."""
        self._killed = True
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(TIMEOUT)

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Wait for the end and return the exit code (negative: the signal)."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ChildError(f"still runs after {timeout} s\n{self.stderr()}") from None

    def stderr(self) -> str:
        """What the child wrote to its standard error so far."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._process.poll() is None:
                self.kill()
            elif kind is None and self._process.returncode and not self._killed:
                code = self._process.returncode
                raise ChildError(f"ended with {code}\n{self.stderr()}")
        finally:
            for pipe in (self._process.stdin, self._process.stdout, self._stderr):
                if pipe is not None:
                    pipe.close()


def say(value: Any) -> None:
    """In the child: send *value* to the parent."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def hear() -> Any:
    """In the child: wait for the parent's next value; exits if it is gone."""
    line = sys.stdin.readline()
    if not line:
        raise SystemExit("the parent is gone")
    return json.loads(line)


def _main(name: str) -> None:
    import django

    django.setup()
    module, _, attribute = name.partition(":")
    function = getattr(import_module(module), attribute)
    result = function(**hear())
    if asyncio.iscoroutine(result):
        asyncio.run(result)


if __name__ == "__main__":
    # The same module object for this script and for those that import it.
    from tests.process import _main as main

    main(sys.argv[1])
