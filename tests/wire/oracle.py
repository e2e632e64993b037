"""The official npm packages, asked what they make of a value."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.services import NODE_PACKAGES

END_SECONDS = 10


class Oracle:
    """A Node.js process with the packages of ``tests/wire/node`` loaded."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["node", str(NODE_PACKAGES / "oracle.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def ask(self, operation: str, **args: Any) -> Any:
        """The answer of one of the operations in ``oracle.mjs``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # ASCII: line separators of other alphabets must not tear the line.
        request = json.dumps({"operation": operation, **args}, ensure_ascii=True)
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or '{"error": "it died"}')
        if "error" in answer:
            raise AssertionError(f"{operation}: {answer['error']}")
        return answer["value"]

    def close(self) -> None:
        self._process.communicate(timeout=END_SECONDS)


@contextmanager
def oracle() -> Iterator[Oracle]:
    """One process for as long as the block runs."""
    running = Oracle()
    try:
        yield running
    finally:
        running.close()
