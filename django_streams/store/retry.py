"""The rule for failures whose outcome is unknown.

Outside a transaction a lost connection, a lock or a serialization failure is
retried on a new connection for ``RETRY_SECONDS``. The retry is not the same
call: it first finds out whether the lost one took effect. Inside the caller's
transaction nothing is retried, for that transaction is already lost.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .. import conf
from ..exceptions import StreamUnavailableError
from . import outages
from .base import StreamStore

R = TypeVar("R")

_FIRST_PAUSE = 0.02
_NEVER = threading.Event()


def persist(
    store: StreamStore,
    first: Callable[[], R],
    again: Callable[[], R] | None = None,
    *,
    stream_id: str | None = None,
    hurry: threading.Event | None = None,
) -> R:
    """Call *first*; after an unclear failure call *again* until it is clear.

    Raises :class:`StreamUnavailableError` when ``RETRY_SECONDS`` have passed or
    *hurry* is set, or at once inside the caller's transaction if the failure is one
    we can explain; other database errors pass through.
    """
    attempt = first
    hurry = _NEVER if hurry is None else hurry
    pause = _FIRST_PAUSE
    deadline = time.monotonic() + conf.get().RETRY_SECONDS
    while True:
        inside = store.in_atomic()
        began = time.monotonic()
        try:
            result = attempt()
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
                outages.note(store.alias, began)
            store.reset()
            left = deadline - time.monotonic()
            if left <= 0 or hurry.is_set():
                waited = conf.get().RETRY_SECONDS - max(0.0, left)
                raise StreamUnavailableError(
                    f"the database {store.alias!r} did not take the call for "
                    f"{waited:.3g} seconds ({error}); call again, the writer finds "
                    "out first what became of this one",
                    stream_id=stream_id,
                ) from error
        else:
            if not inside and time.monotonic() - began > outages.LONGEST_PAUSE:
                # It stood behind a lock, or a network that was silent: leases may
                # be over that nobody could renew.
                outages.note(store.alias, began)
            return result
        # Jittered: writers that failed together must not return together.
        hurry.wait(min(left, pause * random.uniform(0.5, 1.0)))  # noqa: S311
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
