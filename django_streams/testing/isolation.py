"""What a test with the library needs around it, whoever runs the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from . import agents, tab
from .errors import ClientError

DEFAULTS = {
    "SINGLE_CONNECTION": True,
    "POLL_MIN": 0.01,
    "POLL_MAX": 0.05,
    "POOL_IDLE": 0.2,
}
"""A test's transaction is seen by its own connection alone, and never commits,
so no wake comes: the poll has to be quick. What the project sets counts more."""

WITH_CONNECTIONS = frozenset(
    (
        "django-streams",
        "django-streams-commit",
        "django-streams-keeper",
        "django-streams-poll",
        "django-streams-producer",
    )
)
"""Threads that hold a connection, which would keep the test database in use."""

WITHIN = 10.0


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that nothing of the test inside is left in the process.

    Raises :class:`ClientError` for an agent client that is still open, and for
    threads that still use the database ten seconds later.
    """
    before = _threads()
    try:
        yield
        _all_closed()
    finally:
        tab.forget_all()
        agents.take_back()
        _threads_end(before)


def _all_closed() -> None:
    if left := tab.still_open():
        raise ClientError(
            f"{left} is still open, and its event loop may have ended; use "
            "`async with`, or await close() before the test ends"
        )


def _threads() -> set[threading.Thread]:
    return {t for t in threading.enumerate() if t.name in WITH_CONNECTIONS}


def _threads_end(before: set[threading.Thread]) -> None:
    until = time.monotonic() + WITHIN
    for thread in _threads() - before:
        thread.join(max(0.0, until - time.monotonic()))
        if thread.is_alive():
            raise ClientError(
                f"the thread {thread.name!r} still works {WITHIN:g} s after the test, "
                "on a producer or a reader that was not ended"
            )
