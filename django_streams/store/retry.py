"""The rule for failures whose outcome is unknown.

Outside a transaction a lost connection, a lock or a serialization failure is
retried on a new connection for ``RETRY_SECONDS``. The retry is not the same
call: it first finds out whether the lost one took effect. Inside the caller's
transaction nothing is retried, for that transaction is already lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from .. import conf
from ..exceptions import StreamUnavailableError
from . import outages
from .base import StreamStore

R = TypeVar("R")

_FIRST_PAUSE = 0.02


def persist(
    store: StreamStore,
    first: Callable[[], R],
    again: Callable[[], R] | None = None,
    *,
    stream_id: str | None = None,
) -> R:
    """Call *first*; after an unclear failure call *again* until it is clear.

    Raises :class:`StreamUnavailableError` when ``RETRY_SECONDS`` have passed,
    or at once inside the caller's transaction if the failure is one we can
    explain; other database errors pass through.
    """
    attempt = first
    pause = _FIRST_PAUSE
    deadline = time.monotonic() + conf.get().RETRY_SECONDS
    while True:
        inside = store.in_atomic()
        try:
            return attempt()
        except Exception as error:
            if not store.transient(error):
                raise
            if inside:
                explained = store.explain(error)
                if explained is None:
                    raise
                explained.stream_id = stream_id
                raise explained from error
            if store.away(error):
                outages.note(store.alias)
            store.reset()
            left = deadline - time.monotonic()
            if left <= 0:
                raise StreamUnavailableError(
                    f"the database {store.alias!r} did not take the call for "
                    f"{conf.get().RETRY_SECONDS:g} seconds ({error}); call again, "
                    "the writer finds out first what became of this one",
                    stream_id=stream_id,
                ) from error
        # Jittered: writers that failed together must not return together.
        time.sleep(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311
        pause = min(pause * 2, outages.LONGEST_PAUSE)
        attempt = again or first


def once_more(store: StreamStore, work: Callable[[], R]) -> R:
    """Call *work*, and again at once if a connection kept from before was dead.

    For loops that come back anyway and must not wait: what fails twice raises,
    with the connection dropped.
    """
    try:
        return work()
    except Exception as error:
        store.reset()
        if not store.transient(error):
            raise
    try:
        return work()
    except Exception as error:
        store.reset()
        if store.away(error):
            outages.note(store.alias)
        raise
