"""Wakes through LISTEN and NOTIFY: who gets them, and what they cost the server."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from pytest_django import Settings

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, Waker, get_waker, postgres
from django_streams.wake.channel_layer import ChannelLayerWaker
from django_streams.wake.marks import Marks
from django_streams.wake.postgres import PostgresWaker
from django_streams.wake.remote import SeveralWakers
from tests.contract.waiting import eventually, holds
from tests.ears import Ear
from tests.own_redis import LAYERS
from tests.unit.renumbering import Renumbering

KEY = stream_key("a stream")
NOWHERE = {
    "default": {
        "BACKEND": LAYERS["redis"],
        "CONFIG": {"hosts": ["redis://127.0.0.1:1"]},
    }
}
THROUGH = {"CHANNEL_LAYER": None, "WAKE_DATABASE": "postgresql"}


@pytest.fixture(autouse=True)
def own_settings(settings: Settings) -> Iterator[None]:
    """Whatever a test sets, the process's waker is made by it and ends with it."""
    settings.DJANGO_STREAMS = {}
    yield
    settings.DJANGO_STREAMS = {}


class Pair:
    """A waker that sends and one that listens, as two processes have them."""

    def __init__(self, alias: str) -> None:
        self.here = PostgresWaker(LocalWaker(), alias)
        self.there = PostgresWaker(LocalWaker(), alias)

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def pair(postgresql_db: str) -> Iterator[Pair]:
    made = Pair(postgresql_db)
    yield made
    made.close()


def sessions(alias: str) -> list[str]:
    """The last statement of each session of wakers, by the server's account."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'django_streams wakes' ORDER BY backend_start"
        )
        return [query for (query,) in cursor.fetchall()]


# --- which waker a process gets -----------------------------------------------


@pytest.mark.needs("postgresql")
def test_the_setting_names_the_database_that_carries_wakes(settings: Settings) -> None:
    before = threading.active_count()
    settings.DJANGO_STREAMS = THROUGH
    assert isinstance(get_waker(), PostgresWaker)
    assert threading.active_count() == before, "nothing is connected yet"


@pytest.mark.needs("postgresql")
def test_it_stands_beside_a_channel_layer(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = NOWHERE
    settings.DJANGO_STREAMS = {"WAKE_DATABASE": "postgresql"}
    waker = get_waker()
    assert isinstance(waker, SeveralWakers)
    kinds = [type(carrier) for carrier in waker._carriers]
    assert kinds == [ChannelLayerWaker, PostgresWaker]


@pytest.mark.needs("postgresql")
def test_a_single_connection_is_not_joined_by_another(settings: Settings) -> None:
    settings.DJANGO_STREAMS = {**THROUGH, "SINGLE_CONNECTION": True}
    assert isinstance(get_waker(), LocalWaker)


@pytest.mark.parametrize(
    ("alias", "reason"), [("nowhere", "DATABASES lacks"), ("default", "sqlite")]
)
def test_an_alias_that_cannot_do_it_is_refused(
    settings: Settings, alias: str, reason: str
) -> None:
    settings.DJANGO_STREAMS = {"WAKE_DATABASE": alias}
    with pytest.raises(ImproperlyConfigured, match=reason):
        get_waker()


@pytest.mark.needs("postgresql")
def test_without_psycopg_3_the_error_names_the_extra(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connections["postgresql"].vendor == "postgresql"
    monkeypatch.setitem(sys.modules, "psycopg", None)
    settings.DJANGO_STREAMS = THROUGH
    with pytest.raises(ImproperlyConfigured, match=r"django-streams\[postgresql\]"):
        get_waker()


# --- what goes over the wire --------------------------------------------------


def heard(waker: Waker, key: str) -> Ear:
    """An ear that other processes reach."""
    ear = Ear()
    waker.listen(key, ear)
    ear.hears()
    ear.count = 0
    return ear


def test_a_hint_holds_nothing_but_keys_and_many_of_them(postgresql_db: str) -> None:
    params = connections[postgresql_db].get_connection_params()
    waker = PostgresWaker(LocalWaker(), postgresql_db)
    keys = [stream_key(str(number)) for number in range(1000)]
    with psycopg.connect(
        host=params["host"],
        port=params["port"],
        user=params["user"],
        password=params.get("password"),
        dbname=params["dbname"],
        autocommit=True,
    ) as listener:
        listener.execute(f"LISTEN {postgres.CHANNEL}")
        for key in keys:
            waker.wake(key)
        got: list[str] = []
        payloads = 0
        for note in listener.notifies(timeout=10):
            assert len(note.payload) < 8000
            payloads += 1
            got += note.payload.split(",")
            if len(got) >= len(keys):
                break
    waker.close()
    assert sorted(got) == sorted(keys)
    assert payloads < 100


def test_payloads_of_others_on_the_channel_do_no_harm(
    pair: Pair, postgresql_db: str
) -> None:
    ear = heard(pair.there, KEY)
    with connections[postgresql_db].cursor() as cursor:
        for payload in ("", ",,", "é" * 100, f"x,{KEY}"):
            cursor.execute("SELECT pg_notify(%s, %s)", [postgres.CHANNEL, payload])
    ear.hears()
    pair.here.wake(KEY)
    ear.hears(2)


def test_a_process_has_one_connection_whatever_it_follows(
    pair: Pair, postgresql_db: str
) -> None:
    ears = [heard(pair.there, KEY)]
    keys = [KEY, *(stream_key(str(number)) for number in range(50))]
    for key in keys[1:]:
        ears.append(Ear())
        pair.there.listen(key, ears[-1])
    for key in keys:
        pair.there.wake(key)
        pair.here.wake(key)
    for ear in ears:
        ear.hears(2)
    assert len(sessions(postgresql_db)) == 2


def test_who_follows_nothing_does_not_listen(
    pair: Pair, postgresql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at first, nor for long after the last reader has gone."""
    monkeypatch.setattr(postgres, "PROBE_EVERY", 0.05)
    pair.here.wake(KEY)
    eventually(lambda: sessions(postgresql_db) == ["SELECT 1"])
    stop = pair.here.listen(KEY, ear := Ear())
    ear.hears()
    stop()
    eventually(lambda: "UNLISTEN" in sessions(postgresql_db)[0])
    again = heard(pair.here, KEY)
    pair.there.wake(KEY)
    again.hears()


def test_a_busy_producers_wakes_are_joined(
    pair: Pair, postgresql_db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SEND_GAP", 0.2)
    ear = heard(pair.there, KEY)
    began = time.monotonic()
    for _ in range(100):
        pair.here.wake(KEY)
        time.sleep(0.002)
    ear.hears()
    assert ear.count <= 2 + (time.monotonic() - began) / 0.2


def test_what_is_joined_still_leaves_when_the_waker_is_closed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "SEND_GAP", 60.0)
    first, second = heard(pair.there, KEY), Ear()
    pair.there.listen(stream_key("second"), second)
    pair.here.wake(KEY)
    first.hears()
    pair.here.wake(stream_key("second"))
    pair.here.close()
    second.hears()


def test_what_a_process_sent_itself_is_not_heard_again(pair: Pair) -> None:
    last = stream_key("the last")
    mine, sentinel = heard(pair.here, KEY), Ear()
    pair.here.listen(last, sentinel)
    theirs = heard(pair.there, KEY)
    pair.here.wake(KEY)
    theirs.hears()
    # One channel is in order: an echo of the first would come before this.
    pair.there.wake(last)
    sentinel.hears()
    assert mine.count == 1


def test_stopping_twice_leaves_other_followers_their_place(pair: Pair) -> None:
    stop = pair.here.listen(KEY, Ear())
    pair.here.listen(KEY, Ear())
    stop()
    stop()
    assert marks_of(pair.here).followed() == [KEY]


def test_followers_that_come_and_go_leave_nothing_behind(pair: Pair) -> None:
    ear = heard(pair.here, KEY)
    for number in range(100):
        pair.here.listen(stream_key(str(number)), Ear())()
    pair.there.wake(KEY)
    ear.hears()
    eventually(lambda: not marks_of(pair.here)._changed)
    assert marks_of(pair.here).followed() == [KEY]


def marks_of(waker: PostgresWaker) -> Marks:
    return next(iter(waker._ends.values())).marks


def test_of_several_carriers_each_is_used_and_the_process_hears_once(
    pair: Pair, postgresql_db: str
) -> None:
    """Two of a kind hear each other, which others do not; hence the threads."""
    local = LocalWaker()
    carriers = [PostgresWaker(local, postgresql_db) for _ in range(2)]
    several = SeveralWakers(local, carriers)
    callers: list[threading.Thread] = []

    def outside() -> int:
        return len(callers) - callers.count(threading.current_thread())

    theirs = heard(pair.there, KEY)
    try:
        stop = several.listen(KEY, lambda: callers.append(threading.current_thread()))
        eventually(lambda: outside() == 2)  # by each, when it listens
        several.wake(KEY)
        assert callers.count(threading.current_thread()) == 1
        theirs.hears(2)
        eventually(lambda: outside() == 4)  # each heard the other
        pair.there.wake(KEY)
        eventually(lambda: outside() == 6)
        stop()
        several.wake(KEY)
        theirs.hears(4)
        assert len(callers) == 7
    finally:
        several.close()
    eventually(lambda: len(sessions(postgresql_db)) == 1)


# --- a pooler in between ------------------------------------------------------


def test_a_pooler_is_found_out_and_told(
    pooled: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Through one that lends connections, LISTEN is taken and nothing comes."""
    caplog.set_level(logging.INFO, "django_streams.wake")
    waker = PostgresWaker(LocalWaker(), pooled)
    try:
        waker.listen(KEY, ear := Ear())
        eventually(lambda: "a connection pooler answers" in caplog.text)
        assert holds(lambda: ear.count == 0)
        waker.wake(KEY)
        assert ear.count == 1, "its own process is still woken"
    finally:
        waker.close()


@pytest.fixture
def pooled(postgresql_db: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An alias behind something that gives its clients numbers of its own."""
    config: dict[str, Any] = dict(connections.settings[postgresql_db])
    with Renumbering(config["HOST"], int(config["PORT"])) as proxy:
        config |= {
            "HOST": "127.0.0.1",
            "PORT": proxy.port,
            "OPTIONS": {"sslmode": "disable"},
        }
        monkeypatch.setitem(connections.settings, "pooled", config)
        yield "pooled"
