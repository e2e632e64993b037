"""The benchmark's own databases: made, emptied between goals, and dropped."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from tests import services

PREFIX = "ds_bench_"
"""Before the process id, so that a later run can drop what a killed one left."""


class Databases:
    """A PostgreSQL database and a folder with an SQLite file, inside ``with``.

    Sets Django up with them. What is in them is lost at the end.
    """

    def __enter__(self) -> Self:
        _sweep()
        name = f"{PREFIX}{os.getpid()}"
        self._folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self._name = name
        self._file = self._folder / "bench.sqlite3"
        self._empty_file = self._folder / "empty.sqlite3"
        os.environ["BENCH_SQLITE"] = str(self._file)
        os.environ["BENCH_POSTGRESQL"] = name
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        try:
            with _connect() as connection:
                connection.execute(
                    sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
                )
            self._migrate()
        except BaseException:
            self._drop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._drop()

    def _migrate(self) -> None:
        import django
        from django.core.management import call_command
        from django.db import connections

        django.setup()
        for alias in connections:
            call_command("migrate", database=alias, verbosity=0)
        connections.close_all()
        # The log was merged into the file when its last connection closed.
        shutil.copyfile(self._file, self._empty_file)

    def empty(self) -> None:
        """Give the next goal databases as new. Nobody may be connected."""
        with _connect(self._name) as connection:
            connection.execute(
                "TRUNCATE django_streams_stream, django_streams_chunkblock,"
                " django_streams_conversation RESTART IDENTITY CASCADE"
            )
        for tail in ("-wal", "-shm"):
            Path(f"{self._file}{tail}").unlink(missing_ok=True)
        shutil.copyfile(self._empty_file, self._file)

    def _drop(self) -> None:
        with _connect() as connection:
            _drop(connection, self._name)
        shutil.rmtree(self._folder, ignore_errors=True)


def _connect(name: str = "postgres") -> psycopg.Connection:
    return psycopg.connect(
        host=services.POSTGRESQL_HOST,
        port=services.POSTGRESQL_PORT,
        user=services.POSTGRESQL_USER,
        password=services.POSTGRESQL_PASSWORD or None,
        dbname=name,
        autocommit=True,
    )


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(
        sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
    )


def _sweep() -> None:
    """Remove what runs left that were killed before they could."""
    with _connect() as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX]
        ).fetchall()
        for (name,) in names:
            if not _alive(name):
                _drop(connection, name)
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if not _alive(folder.name.partition("-")[0]):
            shutil.rmtree(folder, ignore_errors=True)


def _alive(name: str) -> bool:
    """Whether the process that *name* is named after still runs."""
    return Path(f"/proc/{name.removeprefix(PREFIX)}").exists()
