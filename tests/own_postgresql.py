"""A PostgreSQL of a test's own, to stop, crash and start again."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests import services

WITHIN = 20.0
"""Seconds in which a PostgreSQL on this machine must come up or go down."""

USER = "postgres"
"""Who owns the files where this process is root: PostgreSQL refuses root."""


def _programs() -> Path | None:
    """The folder of initdb and postgres; Debian keeps them off the PATH."""
    if found := services.program("initdb"):
        return Path(found).resolve().parent
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    return max(folders, key=lambda f: float(f.parent.name), default=None)


def _probe() -> str | None:
    if _programs() is None:
        return "no program named initdb"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"running as root, and there is no user named {USER}"
        if services.program("runuser") is None:
            return "running as root, and there is no program named runuser"
    return None


own_postgresql = services.Service("PostgreSQL's own programs", _probe)


class OwnPostgreSQL:
    """``postgres`` on a free port of 127.0.0.1; runs inside ``with``.

    It does not force writes to the disk: it is crashed, the machine is not.
    Children use it with :attr:`env`, under the same settings.
    """

    def __init__(self) -> None:
        own_postgresql.require()
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port: int = one.getsockname()[1]
        self.env = {
            "DS_TEST_POSTGRESQL_HOST": "127.0.0.1",
            "DS_TEST_POSTGRESQL_PORT": str(self.port),
            "DS_TEST_POSTGRESQL_USER": USER,
        }
        self._folder = Path(tempfile.mkdtemp(prefix="ds_test_pg_"))
        self._process: subprocess.Popen[bytes] | None = None

    def create(self, name: str) -> None:
        """Make an empty database."""
        with self.connect("postgres") as connection:
            connection.execute(f'CREATE DATABASE "{name}"')

    def start(self) -> None:
        """Start it on its port and wait until it answers."""
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "60",
        }
        settings = [f"--{name}={value}" for name, value in options.items()]
        self._process = self._run("postgres", "-D", str(self._folder), *settings)
        deadline = time.monotonic() + WITHIN
        while True:
            assert self._process.poll() is None, "postgres ended at once"
            with contextlib.suppress(psycopg.OperationalError):
                self.connect("postgres").close()
                return
            assert time.monotonic() < deadline, f"no PostgreSQL within {WITHIN} s"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it. SIGINT: sessions are told; SIGQUIT: as in a crash."""
        if self._process is not None:
            # What runs under runuser is its only child, and has its own pid.
            pid = int((self._folder / "postmaster.pid").read_text().split()[0])
            os.kill(pid, how)
            self._process.wait(WITHIN)
            self._process = None

    def demote(self) -> None:
        """Refuse writes, as a server does that is not the primary (any more)."""
        self._default_to_read_only("on")

    def promote(self) -> None:
        """Take writes again."""
        self._default_to_read_only("off")

    def _default_to_read_only(self, value: str) -> None:
        with self.connect("postgres") as connection:
            connection.execute(
                f"ALTER SYSTEM SET default_transaction_read_only = {value}"
            )
            connection.execute("SELECT pg_reload_conf()")

    def connect(self, name: str) -> psycopg.Connection[tuple[object, ...]]:
        """Its superuser in the database *name*; every statement commits."""
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            dbname=name,
            autocommit=True,
        )

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        folder = _programs()
        assert folder is not None
        root = ["runuser", "-u", USER, "--"] if os.geteuid() == 0 else []
        return subprocess.Popen(
            [*root, str(folder / program), *arguments],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        if os.geteuid() == 0:
            shutil.chown(self._folder, USER)
        options = ["--no-sync", "-A", "trust", "-U", USER, "-E", "UTF8"]
        made = self._run("initdb", "-D", str(self._folder), "--locale=C", *options)
        try:
            assert made.wait(WITHIN) == 0, "initdb failed"
            self.start()
        except BaseException:
            made.kill()
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._folder)
