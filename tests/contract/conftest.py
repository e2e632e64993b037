"""One suite over all stores and through both doors.

``store``
    a :class:`~tests.contract.stores.StoreUnderTest`, once for each of
    ``STORES``; ``db_store`` only those that live in a database.
``streams``
    the public facade on that store, once through the sync door and once
    through the async one; a test written with plain calls covers both.
``follow``
    starts a reader in the background, through the same door.

Tests of one door alone use ``store.streams()``. Time passes by
``store.elapse(seconds)``; nothing sleeps for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pytest_django import Settings

from django_streams import Streams
from tests.conftest import RealDb

from .doors import DOORS, Door, Follower
from .stores import DATABASE_STORES, STORES, DatabaseUnderTest, StoreUnderTest

Follow = Callable[..., Follower]

SHORT = {"POLL_MIN": 0.02, "POLL_MAX": 0.05, "RETRY_SECONDS": 4.0}
"""Timers of the suite: no test waits longer than this for a poll."""


@pytest.fixture(autouse=True)
def short_timers(settings: Settings) -> None:
    settings.DJANGO_STREAMS = dict(SHORT)


def _make(name: str, request: pytest.FixtureRequest) -> StoreUnderTest:
    entry = STORES[name]
    if entry.alias is not None:
        real_db: RealDb = request.getfixturevalue("real_db")
        real_db(entry.alias)
    made = entry.make()
    request.addfinalizer(made.close)
    return made


@pytest.fixture(params=list(STORES))
def store(request: pytest.FixtureRequest) -> StoreUnderTest:
    return _make(request.param, request)


@pytest.fixture(params=DATABASE_STORES)
def db_store(request: pytest.FixtureRequest) -> DatabaseUnderTest:
    made = _make(request.param, request)
    assert isinstance(made, DatabaseUnderTest)
    return made


@pytest.fixture
def sqlite_store(request: pytest.FixtureRequest) -> DatabaseUnderTest:
    """For what only SQLite does."""
    made = _make("sqlite", request)
    assert isinstance(made, DatabaseUnderTest)
    return made


@pytest.fixture
def postgresql_store(request: pytest.FixtureRequest) -> DatabaseUnderTest:
    """For what only PostgreSQL does."""
    made = _make("postgresql", request)
    assert isinstance(made, DatabaseUnderTest)
    return made


@pytest.fixture
def mariadb_store(request: pytest.FixtureRequest) -> DatabaseUnderTest:
    """For what only MariaDB does."""
    made = _make("mariadb", request)
    assert isinstance(made, DatabaseUnderTest)
    return made


@pytest.fixture(params=["postgresql", "mariadb"])
def row_locking_store(request: pytest.FixtureRequest) -> DatabaseUnderTest:
    """Where a transaction holds rows; on SQLite it holds the whole database."""
    made = _make(request.param, request)
    assert isinstance(made, DatabaseUnderTest)
    return made


@pytest.fixture(params=list(DOORS))
def door(request: pytest.FixtureRequest) -> Iterator[Door]:
    made = DOORS[request.param]()
    yield made
    made.close()


@pytest.fixture
def streams(store: StoreUnderTest, door: Door) -> Streams:
    return door.enter(store.streams())


@pytest.fixture
def follow(streams: Streams, door: Door) -> Iterator[Follow]:
    started: list[Follower] = []

    def start(stream_id: str, **options: Any) -> Follower:
        reader = options.pop("streams", streams)
        follower = door.follow(reader, stream_id, **options)
        started.append(follower)
        return follower

    yield start
    for follower in started:
        follower.stop()
