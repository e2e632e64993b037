"""The log's engine: one store for each database alias."""

from __future__ import annotations

from django.db import connections

from ..exceptions import StreamsError
from .base import StreamStore
from .generic import GenericStore
from .mysql import MySQLStore
from .postgresql import PostgreSQLStore
from .sqlite import SQLiteStore

_VENDORS: dict[str, type[GenericStore]] = {
    "sqlite": SQLiteStore,
    "postgresql": PostgreSQLStore,
    "mysql": MySQLStore,
}

_stores: dict[tuple[str, str], StreamStore] = {}


def get_store(alias: str) -> StreamStore:
    """The store of a database alias; raises for a vendor without one."""
    vendor = connections[alias].vendor
    # Stores hold no state of their own, so a race here makes an equal one.
    store = _stores.get((alias, vendor))
    if store is None:
        if vendor not in _VENDORS:
            raise StreamsError(
                f"the database {alias!r} is {vendor}, which has no store; "
                f"use one of {', '.join(sorted(_VENDORS))}",
                code="vendor",
            )
        store = _stores[alias, vendor] = _VENDORS[vendor](alias)
    return store


__all__ = ["StreamStore", "get_store"]
