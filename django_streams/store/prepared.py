"""PostgreSQL plans our statements once a connection, on connections of our own.

Planning is half of an append and of a page. Django never prepares, since a
prepared statement belongs to one server session and a transaction pooler hands
out another each time. We prepare on the kept connections of our own threads,
unless the project says ``DISABLE_SERVER_SIDE_CURSORS``, as Django's
documentation asks of whoever is behind such a pooler. One who forgot is found
out at the first failure, and nothing is prepared from then on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from .kept import is_bare

logger = logging.getLogger("django_streams.store")

_PREPARE_AFTER = 3
"""Executions of a statement on a connection after which it is prepared."""

_SESSION_LOST = frozenset({"26000", "42P05"})
"""There is no such prepared statement; there is one of that name already."""

_PLAN_OUTDATED = "0A000"
"""With "cached plan": a migration changed the table under a kept connection."""


class PreparedStatements:
    """Whether and how one database's statements are prepared."""

    def __init__(self) -> None:
        self._pooled = False

    @contextmanager
    def cursor(self, connection: BaseDatabaseWrapper) -> Iterator[Any]:
        """A cursor; Django's where anybody watches what Django's execute."""
        if (
            self._pooled
            or not is_bare(connection)
            or connection.settings_dict.get("DISABLE_SERVER_SIDE_CURSORS")
            or not _psycopg3()
        ):
            with connection.cursor() as cursor:
                yield cursor
            return
        from psycopg import Cursor

        connection.ensure_connection()
        raw: Any = connection.connection
        raw.prepare_threshold = _PREPARE_AFTER
        with connection.wrap_database_errors, Cursor(raw) as bare:
            yield bare

    def failed(self, error: Exception) -> bool:
        """Whether *error* is about the preparing alone: nothing was executed."""
        cause = error.__cause__
        state = getattr(cause, "sqlstate", None)
        if state in _SESSION_LOST:
            if not self._pooled:
                logger.warning(
                    "a prepared statement got lost (%s): the connection goes "
                    "through a transaction pooler; statements are not prepared "
                    "any more. Set DISABLE_SERVER_SIDE_CURSORS on this database",
                    cause,
                )
            self._pooled = True
            return True
        return state == _PLAN_OUTDATED and "cached plan" in str(cause)


def is_prepared(cursor: Any) -> bool:
    """Whether it is the driver's own, which prepares and can answer in binary."""
    return not hasattr(cursor, "db")


def _psycopg3() -> bool:
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    return bool(is_psycopg3)
