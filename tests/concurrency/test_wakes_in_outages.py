"""Redis stops, freezes, forgets or never answers: nothing waits, all recovers."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Self

import pytest

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, marks, session
from django_streams.wake.channel_layer import ChannelLayerWaker
from tests.contract.waiting import eventually
from tests.ears import WITHIN, Ear
from tests.own_redis import LAYERS, OwnRedis, redis_layer

pytestmark = pytest.mark.needs("redis-server", "redis")

KEY = stream_key("a stream")


class MuteServer:
    """Accepts connections on a port, takes what comes and never answers."""

    def __init__(self, port: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._accepted: list[socket.socket] = []
        self.asked = threading.Event()
        self._thread = threading.Thread(target=self._accept)

    def _accept(self) -> None:
        while True:
            try:
                self._accepted.append(self._listener.accept()[0])
            except OSError:
                return  # closed
            self.asked.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # A thread inside accept() notices a shutdown, but no close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(WITHIN)
        for open_socket in (self._listener, *self._accepted):
            open_socket.close()


class Pair:
    """A waker that sends and one that listens, as two processes have them."""

    def __init__(self, kind: str, url: str) -> None:
        make = redis_layer(kind, url, f"ds_test_{secrets.token_hex(6)}")
        self.here = ChannelLayerWaker(LocalWaker(), make, "here")
        self.there = ChannelLayerWaker(LocalWaker(), make, "there")
        self.ear = Ear()
        self.there.listen(KEY, self.ear)

    def wake(self, times: int = 2000, key: str = KEY) -> None:
        """Wake again and again; fails if that is held up."""

        def work() -> None:
            for _ in range(times):
                self.here.wake(key)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(WITHIN)
        assert not thread.is_alive(), "a wake waits for the layer"

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


@pytest.fixture(autouse=True)
def probe_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "PROBE_EVERY", 0.2)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "django_streams.wake")
    return caplog


@pytest.fixture(params=list(LAYERS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def own() -> Iterator[OwnRedis]:
    with OwnRedis() as server:
        yield server


@pytest.fixture
def pair(own: OwnRedis, kind: str) -> Iterator[Pair]:
    """A pair that works."""
    made = Pair(kind, own.url)
    made.ear.hears()
    made.arrives()
    yield made
    made.close()


def said(log: pytest.LogCaptureFixture, name: str) -> list[str]:
    """What the waker *name* logged, as "down" and "up"."""
    lines = [r.getMessage() for r in log.records if f"layer '{name}'" in r.getMessage()]
    return ["up" if "works again" in line else "down" for line in lines]


def both(log: pytest.LogCaptureFixture, *words: str) -> bool:
    return all(said(log, name) == list(words) for name in ("here", "there"))


def test_wakes_go_on_while_redis_is_stopped_and_arrive_when_it_is_back(
    own: OwnRedis, pair: Pair, log: pytest.LogCaptureFixture
) -> None:
    connected = own.connections()
    own.stop()
    pair.wake()
    eventually(lambda: both(log, "down"))
    pair.wake()
    own.start()
    pair.arrives()
    eventually(lambda: both(log, "down", "up"))
    assert own.connections() <= connected


def test_wakes_go_on_while_redis_is_frozen_and_arrive_when_it_thaws(
    own: OwnRedis, pair: Pair, log: pytest.LogCaptureFixture
) -> None:
    connected = own.connections()
    own.freeze()
    pair.wake()
    eventually(lambda: both(log, "down"))
    pair.wake()
    own.thaw()
    pair.arrives()
    eventually(lambda: both(log, "down", "up"))
    eventually(lambda: own.connections() <= connected)


def test_a_server_that_never_answers_holds_nobody_up(
    own: OwnRedis, kind: str, log: pytest.LogCaptureFixture
) -> None:
    own.stop()
    with MuteServer(own.port) as mute:
        pair = Pair(kind, own.url)
        assert mute.asked.wait(WITHIN)
        pair.wake()
        eventually(lambda: both(log, "down"))
        pair.wake()
    own.start()
    pair.arrives()
    eventually(lambda: both(log, "down", "up"))
    pair.close()


def test_closing_in_an_outage_ends_the_threads(own: OwnRedis, pair: Pair) -> None:
    own.freeze()
    pair.wake()
    closing = threading.Thread(target=pair.close, daemon=True)
    closing.start()
    closing.join(WITHIN)
    assert not closing.is_alive()
    names = [thread.name for thread in threading.enumerate()]
    assert "django-streams-wake" not in names
    own.thaw()


def test_what_waits_in_an_outage_is_bounded(
    own: OwnRedis, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MOST_PENDING", 50)
    own.freeze()
    for number in range(500):
        pair.wake(1, stream_key(str(number)))
    end = next(iter(pair.here._ends.values()))
    assert len(end.marks._pending) <= 50
    own.thaw()
    pair.arrives()


def test_a_listener_hears_again_though_redis_forgot_it(
    own: OwnRedis, pair: Pair
) -> None:
    # Connections stay open, nothing fails: only what Redis knew is gone.
    own.command("FLUSHALL")
    pair.arrives()


def test_an_idle_listener_hears_again_after_a_restart(
    own: OwnRedis, pair: Pair, log: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    pair.there.listen(stream_key("idle"), ear)
    ear.hears()
    own.stop()
    own.start()
    # Nobody sends: it notices by itself, and looks for what it missed.
    ear.hears(2)
    eventually(lambda: said(log, "there") == ["down", "up"])
    pair.here.wake(stream_key("idle"))
    ear.hears(3)
