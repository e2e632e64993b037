"""Keeping a held turn while a function makes its messages, however long it takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from ..store import get_store
from . import door, orders
from .records import ConversationRef

RENEWALS = 3
"""In one lease: two may fail."""


@contextmanager
def held(ref: ConversationRef, request_id: str, lease: float) -> Iterator[None]:
    """Renew the lease of the turn inside the block, from another thread."""
    over = threading.Event()
    store = get_store(door.alias())

    def renew() -> None:
        while not over.wait(lease / RENEWALS):
            store.submit(lambda: orders.come(ref, request_id, lease))

    # With one connection for all, nobody else could take the turn.
    if not store.inline:
        threading.Thread(target=renew, name="django-streams-hold", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@asynccontextmanager
async def aheld(
    ref: ConversationRef, request_id: str, lease: float
) -> AsyncIterator[None]:
    """The same on an event loop. Cancelled: it is renewed no more."""

    async def renew() -> None:
        while True:
            await asyncio.sleep(lease / RENEWALS)
            await door.run(orders.come, ref, request_id, lease)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
