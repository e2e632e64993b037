"""How an append reaches the store: one entry at a time, each retried alone.

Producers hand an :class:`Append` here and nowhere else, so what is stored
together with what is decided in this module.
"""

from __future__ import annotations

from concurrent.futures import Future

from .store.base import Append, StreamStore
from .store.retry import persist


def store_entry(store: StreamStore, entry: Append) -> int:
    """Store on the calling thread; the first chunk's seq."""
    return persist(
        store,
        lambda: store.append(entry),
        lambda: store.append_again(entry),
        stream_id=entry.stream_id,
    )


def store_entry_again(store: StreamStore, entry: Append) -> int:
    """The same for an entry whose first attempt ended without an answer."""
    return persist(store, lambda: store.append_again(entry), stream_id=entry.stream_id)


def submit_entry(store: StreamStore, entry: Append) -> Future[int]:
    """Store in the background."""
    return store.submit(lambda: store_entry(store, entry))
