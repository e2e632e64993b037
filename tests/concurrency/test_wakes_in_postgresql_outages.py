"""PostgreSQL stops, hangs, or never answers: nothing waits, all recovers."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connections

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, marks, postgres
from django_streams.wake.postgres import PostgresWaker
from tests.contract.waiting import eventually
from tests.ears import WITHIN, Ear
from tests.own_postgresql import USER, OwnPostgreSQL

from .test_wakes_in_outages import MuteServer

pytestmark = pytest.mark.needs("postgresql")

KEY = stream_key("a stream")
ALIAS = "wakes"


@pytest.fixture(scope="module")
def own() -> Iterator[OwnPostgreSQL]:
    with OwnPostgreSQL() as server:
        yield server


@pytest.fixture(autouse=True)
def alias(own: OwnPostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alias that leads straight to it."""
    config: dict[str, Any] = {
        **connections.settings["postgresql"],
        "NAME": "postgres",
        "HOST": "127.0.0.1",
        "PORT": own.port,
        "USER": USER,
        "PASSWORD": "",
    }
    monkeypatch.setitem(connections.settings, ALIAS, config)


@pytest.fixture(autouse=True)
def probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "PROBE_EVERY", 0.2)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "django_streams.wake")
    return caplog


class Pair:
    """A waker that sends and one that listens, as two processes have them."""

    def __init__(self) -> None:
        self.here = PostgresWaker(LocalWaker(), ALIAS)
        self.there = PostgresWaker(LocalWaker(), ALIAS)
        self.ear = Ear()
        self.there.listen(KEY, self.ear)

    def wake(self, times: int = 1000, key: str = KEY) -> None:
        """Wake again and again; fails if that is held up."""

        def work() -> None:
            for _ in range(times):
                self.here.wake(key)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(WITHIN)
        assert not thread.is_alive(), "a wake waits for the server"

    def arrives(self) -> None:
        """Returns when a wake of here is heard there, which it may take a while."""
        before = self.ear.count

        def heard() -> bool:
            self.here.wake(KEY)
            return self.ear.count > before

        eventually(heard)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A pair that works."""
    made = Pair()
    made.ear.hears()
    made.arrives()
    yield made
    made.close()


def ask(own: OwnPostgreSQL, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(
        host="127.0.0.1", port=own.port, user=USER, dbname="postgres", autocommit=True
    ) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def sessions(own: OwnPostgreSQL) -> list[int]:
    """The server's processes that talk to wakers."""
    return [
        pid
        for (pid,) in ask(
            own,
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'django_streams wakes'",
        )
    ]


def said(log: pytest.LogCaptureFixture) -> dict[str, int]:
    """How often wakers said that they are down, and up again."""
    lines = [r.getMessage() for r in log.records if "LISTEN/NOTIFY" in r.getMessage()]
    up = sum("works again" in line for line in lines)
    return {"down": len(lines) - up, "up": up}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_wakes_go_on_while_it_is_stopped_and_arrive_when_it_is_back(
    own: OwnPostgreSQL,
    pair: Pair,
    log: pytest.LogCaptureFixture,
    how: signal.Signals,
) -> None:
    own.stop(how)
    try:
        pair.wake()
        eventually(lambda: said(log)["down"] == 2)
        pair.wake()
    finally:
        own.start()
    pair.arrives()
    eventually(lambda: said(log) == {"down": 2, "up": 2})
    assert len(sessions(own)) == 2


def test_an_idle_listener_is_woken_once_when_it_is_connected_again(
    own: OwnPostgreSQL, pair: Pair
) -> None:
    """Nobody sends: it notices by itself, and looks for what it missed."""
    key = stream_key("idle")
    ear, gone = Ear(), Ear()
    pair.there.listen(key, ear)
    pair.there.listen(stream_key("gone"), gone)()
    assert ear.count == 0
    own.stop()
    own.start()
    ear.hears()
    pair.here.wake(key)
    ear.hears(2)
    assert gone.count == 0


@pytest.fixture
def freeze(own: OwnPostgreSQL) -> Iterator[Callable[[], None]]:
    """Stops the server's processes for the wakers; connections stay open."""
    frozen: list[int] = []

    def stop() -> None:
        frozen.extend(sessions(own))
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)

    yield stop
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not set(frozen) & set(sessions(own)))


def test_a_hung_server_holds_nobody_up_and_is_left(
    own: OwnPostgreSQL,
    pair: Pair,
    freeze: Callable[[], None],
    log: pytest.LogCaptureFixture,
) -> None:
    freeze()
    pair.wake()
    eventually(lambda: said(log)["down"] == 2)
    pair.arrives()
    eventually(lambda: said(log) == {"down": 2, "up": 2})


def test_an_idle_listener_notices_that_its_server_hangs(
    pair: Pair, freeze: Callable[[], None]
) -> None:
    ear = Ear()
    pair.there.listen(stream_key("idle"), ear)
    freeze()
    ear.hears()


def test_a_server_that_never_answers_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture, own: OwnPostgreSQL
) -> None:
    with MuteServer(0) as mute:
        monkeypatch.setattr(postgres, "CONNECT_WITHIN", 0.3)
        port = mute._listener.getsockname()[1]
        config = {**connections.settings[ALIAS], "PORT": port}
        with monkeypatch.context() as muted:
            muted.setitem(connections.settings, ALIAS, config)
            connections.close_all()
            pair = Pair()
            assert mute.asked.wait(WITHIN)
            pair.wake()
            eventually(lambda: said(log)["down"] == 2)
            pair.wake()
    pair.close()


def test_closing_in_an_outage_ends_the_threads(
    pair: Pair, freeze: Callable[[], None]
) -> None:
    freeze()
    pair.wake()
    closing = threading.Thread(target=pair.close, daemon=True)
    closing.start()
    closing.join(WITHIN)
    assert not closing.is_alive()
    names = [thread.name for thread in threading.enumerate()]
    assert "django-streams-wake" not in names


def test_what_waits_in_an_outage_is_bounded(
    own: OwnPostgreSQL, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST_PENDING", 50)
    own.stop()
    try:
        for number in range(500):
            pair.wake(1, stream_key(str(number)))
        end = next(iter(pair.here._ends.values()))
        assert len(end.marks._pending) <= 50
    finally:
        own.start()
    pair.arrives()


def test_a_session_that_is_ended_is_logged_and_replaced(
    own: OwnPostgreSQL, pair: Pair, log: pytest.LogCaptureFixture
) -> None:
    ended = sessions(own)
    for pid in ended:
        ask(own, f"SELECT pg_terminate_backend({pid})")
    # Each notices by itself, whether or not it has something to say.
    eventually(lambda: said(log) == {"down": 2, "up": 2})
    pair.arrives()
    assert len(sessions(own)) == 2
    assert not set(ended) & set(sessions(own))
