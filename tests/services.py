"""What the tests need from outside, and what to do where it is missing.

A :class:`Service` is a server or a program. Where it cannot be reached, the
tests that need it are skipped with one line saying what and why; with
``REQUIRE_ALL=1`` or ``CI=true`` in the environment every skip is a failure.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest

POSTGRESQL_HOST = os.environ.get("DS_TEST_POSTGRESQL_HOST", "127.0.0.1")
POSTGRESQL_PORT = int(os.environ.get("DS_TEST_POSTGRESQL_PORT", "5432"))
POSTGRESQL_USER = os.environ.get("DS_TEST_POSTGRESQL_USER", "postgres")
POSTGRESQL_PASSWORD = os.environ.get("DS_TEST_POSTGRESQL_PASSWORD", "")
MARIADB_HOST = os.environ.get("DS_TEST_MARIADB_HOST", "127.0.0.1")
MARIADB_PORT = int(os.environ.get("DS_TEST_MARIADB_PORT", "3306"))
MARIADB_USER = os.environ.get("DS_TEST_MARIADB_USER", "root")
MARIADB_PASSWORD = os.environ.get("DS_TEST_MARIADB_PASSWORD", "")
REDIS_URL = os.environ.get("DS_TEST_REDIS_URL", "redis://127.0.0.1:6379/0")

CONNECT_TIMEOUT = 2
"""Seconds until a service that does not answer counts as absent."""


def required() -> bool:
    """Whether nothing may be skipped."""
    return (
        os.environ.get("REQUIRE_ALL", "") not in ("", "0")
        or os.environ.get("CI", "").lower() == "true"
    )


@dataclass(frozen=True, slots=True)
class Service:
    """A thing outside the tests; ``probe`` returns why it cannot be used."""

    name: str
    probe: Callable[[], str | None]

    def missing(self) -> str | None:
        """Why it cannot be used, or None; asked once a process."""
        return _ask(self)

    def require(self) -> None:
        """Skip the running test where it is missing (see the conftest)."""
        if reason := self.missing():
            pytest.skip(f"needs {self.name}: {reason}")


@functools.cache
def _ask(service: Service) -> str | None:
    return service.probe()


def _probe_postgresql() -> str | None:
    if find_spec("psycopg") is None:
        return "the package psycopg is not installed"
    import psycopg

    try:
        psycopg.connect(
            host=POSTGRESQL_HOST,
            port=POSTGRESQL_PORT,
            user=POSTGRESQL_USER,
            password=POSTGRESQL_PASSWORD or None,
            dbname="postgres",
            connect_timeout=CONNECT_TIMEOUT,
        ).close()
    except psycopg.Error as error:
        return (
            f"no connection to {POSTGRESQL_HOST}:{POSTGRESQL_PORT} as "
            f"{POSTGRESQL_USER}: {str(error).splitlines()[0]}"
        )
    return None


def _probe_mariadb() -> str | None:
    if find_spec("MySQLdb") is None:
        return "the package mysqlclient is not installed"
    import MySQLdb

    try:
        MySQLdb.connect(
            host=MARIADB_HOST,
            port=MARIADB_PORT,
            user=MARIADB_USER,
            password=MARIADB_PASSWORD,
            connect_timeout=CONNECT_TIMEOUT,
        ).close()
    except MySQLdb.Error as error:
        return (
            f"no connection to {MARIADB_HOST}:{MARIADB_PORT} as {MARIADB_USER}: "
            f"{error.args[-1]}"
        )
    return None


def _probe_redis() -> str | None:
    if find_spec("channels_redis") is None:
        return "the package channels-redis is not installed"
    url = urlsplit(REDIS_URL)
    address = (url.hostname or "127.0.0.1", url.port or 6379)
    try:
        with socket.create_connection(address, CONNECT_TIMEOUT) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError as error:
        return f"no connection to {address[0]}:{address[1]}: {error}"
    if not answer.startswith(b"+PONG"):
        return f"{address[0]}:{address[1]} does not answer PING"
    return None


CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def program(*names: str) -> str | None:
    """The path of the first of *names* on PATH or in the system's sbin."""
    path = os.environ.get("PATH", os.defpath) + os.pathsep + "/usr/sbin"
    return next((found for n in names if (found := shutil.which(n, path=path))), None)


def _probe_program(*names: str) -> Callable[[], str | None]:
    def probe() -> str | None:
        if program(*names):
            return None
        return f"no program named {' or '.join(names)} on PATH"

    return probe


def _probe_chromium() -> str | None:
    if find_spec("playwright") is None:
        return "the package playwright is not installed"
    return _probe_program(*CHROMIUM_NAMES)()


NODE_PACKAGES = Path(__file__).parent / "wire" / "node"
"""Where the official hooks and the AI SDK are installed."""


def _probe_node_packages() -> str | None:
    if reason := _probe_program("node")():
        return reason
    if not (NODE_PACKAGES / "node_modules" / ".ready").exists():
        return f"not installed in {NODE_PACKAGES}: run `make hooks`"
    return None


postgresql = Service("PostgreSQL", _probe_postgresql)
mariadb = Service("MariaDB", _probe_mariadb)
redis = Service("Redis", _probe_redis)
redis_server = Service("redis-server", _probe_program("redis-server"))
chromium = Service("Chromium", _probe_chromium)
node = Service("Node.js", _probe_program("node"))
node_packages = Service("the npm packages", _probe_node_packages)
nginx = Service("nginx", _probe_program("nginx"))

BY_NAME = {
    "postgresql": postgresql,
    "mariadb": mariadb,
    "redis": redis,
    "redis-server": redis_server,
    "chromium": chromium,
    "node": node,
    "node-packages": node_packages,
    "nginx": nginx,
}
