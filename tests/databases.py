"""The run's test databases: made at first use, emptied between tests.

Emptying deletes the rows of the tables that tests write to, in one transaction
a database. Django's ``flush`` truncates every table and then makes content
types and permissions anew, which takes 20 times as long.
"""

from __future__ import annotations

import functools
import os
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import IntegrityError, OperationalError, connections, transaction
from django.test.utils import setup_databases, teardown_databases

from tests import services

PREFIX = "ds_test_"
KEPT_TABLES = frozenset({"django_migrations", "django_content_type", "auth_permission"})
LOCK_TIMEOUT = 10
"""Seconds to wait, while emptying, for a transaction that a test left open."""


class Databases:
    """Makes each alias once, and drops what it made."""

    def __init__(self) -> None:
        self._made: dict[str, list[Any]] = {}

    def ensure(self, alias: str) -> None:
        """Create and migrate the test database of *alias* if that is not done."""
        if alias in self._made:
            return
        if not self._made:
            sweep()
        self._made[alias] = setup_databases(
            verbosity=0, interactive=False, aliases={alias: None}
        )

    def drop(self) -> None:
        """Drop every database made, whoever is still connected."""
        for alias, old_config in self._made.items():
            _disconnect_others(alias)
            teardown_databases(old_config, verbosity=0)
            if connections[alias].vendor == "sqlite":
                for tail in ("-wal", "-shm"):
                    Path(settings.SQLITE_FILE + tail).unlink(missing_ok=True)
        self._made.clear()


def empty(alias: str) -> None:
    """Delete all rows that a test can have written to *alias*.

    A thread that a test left behind may still merge blocks or store a chunk: what
    fails because of it is repeated for LOCK_TIMEOUT seconds.
    """
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            _delete_all(alias)
        except (IntegrityError, OperationalError):
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def _delete_all(alias: str) -> None:
    connection = connections[alias]
    deletes = [f"DELETE FROM {connection.ops.quote_name(t)}" for t in _tables(alias)]
    # The order of the tables is free: SQLite and PostgreSQL check foreign keys
    # at commit, and MariaDB is told not to.
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
            cursor.execute("SET LOCAL synchronous_commit = off")
            cursor.execute("; ".join(deletes))
            return
        if connection.vendor == "mysql":
            cursor.execute(f"SET innodb_lock_wait_timeout = {LOCK_TIMEOUT}")
            cursor.execute("SET foreign_key_checks = 0")
        try:
            for delete in deletes:
                cursor.execute(delete)
        finally:
            if connection.vendor == "mysql":
                cursor.execute("SET foreign_key_checks = 1")
                cursor.execute("SET innodb_lock_wait_timeout = DEFAULT")


@functools.cache
def _tables(alias: str) -> tuple[str, ...]:
    names = connections[alias].introspection.django_table_names(only_existing=True)
    # Streams first: who would add a block to one then waits, and adds none.
    return tuple(
        sorted(
            set(names) - KEPT_TABLES,
            key=lambda name: (name != "django_streams_stream", name),
        )
    )


def _disconnect_others(alias: str) -> None:
    """End the sessions of readers and pools that a test left connected."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        elif connection.vendor == "mysql":
            cursor.execute(
                "SELECT id FROM information_schema.processlist"
                " WHERE db = DATABASE() AND id <> CONNECTION_ID()"
            )
            for (session,) in cursor.fetchall():
                # 1094: it has ended by itself.
                with suppress(OperationalError):
                    cursor.execute("KILL %s", [session])


def sweep() -> None:
    """Remove the databases of runs that were killed before they could."""
    for file in Path(settings.CACHE).glob("*.sqlite3*"):
        if not _alive(file.name.partition(".")[0]):
            file.unlink(missing_ok=True)
    if services.postgresql.missing() is None:
        _sweep_postgresql()
    if services.mariadb.missing() is None:
        _sweep_mariadb()


def _sweep_postgresql() -> None:
    import psycopg
    from psycopg import sql

    with psycopg.connect(
        host=services.POSTGRESQL_HOST,
        port=services.POSTGRESQL_PORT,
        user=services.POSTGRESQL_USER,
        password=services.POSTGRESQL_PASSWORD or None,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE datname LIKE %s",
            [PREFIX.replace("_", r"\_") + "%"],
        ).fetchall()
        for (name,) in names:
            if not _alive(name.removeprefix(PREFIX)):
                connection.execute(
                    sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(
                        sql.Identifier(name)
                    )
                )


def _sweep_mariadb() -> None:
    import MySQLdb

    connection = MySQLdb.connect(
        host=services.MARIADB_HOST,
        port=services.MARIADB_PORT,
        user=services.MARIADB_USER,
        password=services.MARIADB_PASSWORD,
    )
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute("SHOW DATABASES LIKE %s", [PREFIX.replace("_", r"\_") + "%"])
        for (name,) in cursor.fetchall():
            if not _alive(name.removeprefix(PREFIX)):
                cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")


def _alive(run: str) -> bool:
    """Whether the run named after its process id may still be going on."""
    if not run.isascii() or not run.isdigit():
        return True
    try:
        os.kill(int(run), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
