"""How the turns' work gets to the database and off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from django.db import transaction

from .. import conf
from ..store import get_store
from ..store.retry import persist
from ..wake import get_waker

P = ParamSpec("P")
R = TypeVar("R")


def alias() -> str:
    """The database of conversations and turns."""
    return conf.get().DATABASE


@contextmanager
def atomic() -> Iterator[str]:
    """A transaction on the turns' database; gives its alias."""
    name = alias()
    with get_store(name).atomic():
        yield name


def on_commit(work: Callable[[], object]) -> None:
    """Call *work* once the caller's transaction commits; it must not raise."""
    transaction.on_commit(work, using=alias())


def wake_on_commit(key: str) -> None:
    """Wake whoever follows *key* once the caller's transaction commits."""
    on_commit(lambda: get_waker().wake(key))


def call(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call *work* as :func:`run` does, on this thread and connection."""
    store = get_store(alias())
    return persist(store, lambda: work(*args, **kwargs))


async def run_hurried(
    hurry: threading.Event, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """As :func:`run`, but nothing is repeated any more once *hurry* is set."""
    store = get_store(alias())
    return await store.run_waiting(
        persist, store, lambda: work(*args, **kwargs), hurry=hurry
    )


async def run(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Await *work*, repeated while the database is away.

    *work* is called again after an unclear failure, so it must find out what
    became of its last call or not mind being done twice. Cancelled: it may
    still take effect.
    """
    store = get_store(alias())
    return await store.run_waiting(persist, store, lambda: work(*args, **kwargs))
