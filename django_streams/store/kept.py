"""Threads that keep a connection for the library's statements alone.

On such a connection nobody else's transaction, cursor or setting can be in the
way, so a statement may go past Django's cursor, which costs as much as the
statement. Whoever watches what Django executes still sees everything: then
nothing goes past it.
"""

from __future__ import annotations

import threading

from django.db.backends.base.base import BaseDatabaseWrapper

_thread = threading.local()


def keep_connection() -> None:
    """The calling thread, one of ours, keeps its connections to itself."""
    _thread.keeps = True


def is_bare(connection: BaseDatabaseWrapper) -> bool:
    """Whether the driver may be used directly here, outside a transaction too."""
    return (
        getattr(_thread, "keeps", False)
        and not connection.execute_wrappers
        and not connection.queries_logged
    )
