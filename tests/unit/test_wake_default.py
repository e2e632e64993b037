"""Which waker a process gets."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import Settings

import django_streams.wake as room
from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, get_waker
from django_streams.wake.channel_layer import ChannelLayerWaker, layer_maker
from tests.contract.waiting import eventually
from tests.own_redis import LAYERS

KEY = stream_key("a stream")
NOWHERE = "redis://127.0.0.1:1/0"


def layers(backend: str, **config: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": backend, "CONFIG": config}}


@pytest.fixture(autouse=True)
def own_settings(settings: Settings) -> Iterator[None]:
    """Whatever a test sets, the process's waker is made by it and ends with it."""
    settings.DJANGO_STREAMS = {}
    yield
    settings.DJANGO_STREAMS = {}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_leaves_the_process_is_used(settings: Settings, name: str) -> None:
    settings.CHANNEL_LAYERS = layers(LAYERS[name], hosts=[NOWHERE])
    assert isinstance(get_waker(), ChannelLayerWaker)
    assert get_waker() is get_waker()


@pytest.mark.parametrize(
    ("alias", "configured"),
    [
        (None, layers(LAYERS["redis"], hosts=[NOWHERE])),
        ("default", {}),
        ("wakes", layers(LAYERS["redis"], hosts=[NOWHERE])),
        ("default", layers("channels.layers.InMemoryChannelLayer")),
    ],
    ids=["none wanted", "none configured", "unknown alias", "in memory"],
)
def test_without_such_a_layer_wakes_stay_in_the_process(
    settings: Settings, alias: str | None, configured: dict[str, Any]
) -> None:
    settings.CHANNEL_LAYERS = configured
    settings.DJANGO_STREAMS = {"CHANNEL_LAYER": alias}
    assert isinstance(get_waker(), LocalWaker)


def test_getting_a_waker_starts_no_thread(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = layers(LAYERS["redis"], hosts=[NOWHERE])
    before = threading.active_count()
    get_waker()
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "broken",
    [
        {"default": {"BACKEND": "no_such_package.Layer"}},
        {"default": {}},
        layers(LAYERS["redis"], no_such_option=1),
    ],
    ids=["no package", "no backend", "wrong option"],
)
def test_a_layer_that_cannot_be_made_is_logged_and_wakes_go_on_here(
    settings: Settings, broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    settings.CHANNEL_LAYERS = broken
    calls: list[int] = []
    get_waker().listen(KEY, lambda: calls.append(1))
    eventually(lambda: "Channel layer 'default' does not work" in caplog.text)
    get_waker().wake(KEY)
    assert calls == [1]


def test_every_waker_makes_a_layer_of_its_own(settings: Settings) -> None:
    settings.CHANNEL_LAYERS = layers(LAYERS["redis"], hosts=[NOWHERE])
    make = layer_maker("default")
    assert make is not None
    assert make() is not make(), "two loops, or a fork, must not share one"


@pytest.mark.parametrize(
    "changed",
    [{"CHANNEL_LAYERS": {}}, {"DJANGO_STREAMS": {"CHANNEL_LAYER": None}}],
    ids=lambda changed: next(iter(changed)),
)
def test_a_change_of_settings_gives_another_waker_with_the_same_listeners(
    settings: Settings, changed: dict[str, Any]
) -> None:
    settings.CHANNEL_LAYERS = layers(LAYERS["redis"], hosts=[NOWHERE])
    calls: list[int] = []
    before = get_waker()
    before.listen(KEY, lambda: calls.append(1))
    for name, value in changed.items():
        setattr(settings, name, value)
    after = get_waker()
    assert after is not before
    after.wake(KEY)
    assert calls == [1]
    names = {thread.name for thread in threading.enumerate()}
    assert "django-streams-wake" not in names, "the one before was closed"


def test_a_change_of_settings_keeps_the_listeners_of_a_local_waker(
    settings: Settings,
) -> None:
    calls: list[int] = []
    get_waker().listen(KEY, lambda: calls.append(1))
    settings.CHANNEL_LAYERS = layers(LAYERS["redis"], hosts=[NOWHERE])
    get_waker().wake(KEY)
    assert calls == [1]


@pytest.mark.parametrize("kind", ["local", "layer"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_waker_of_its_own(settings: Settings, kind: str) -> None:
    if kind == "layer":
        settings.CHANNEL_LAYERS = layers(LAYERS["redis"], hosts=[NOWHERE])
    parents = get_waker()
    heard_by_parent: list[int] = []
    parents.listen(KEY, lambda: heard_by_parent.append(1))
    pid = os.fork()
    if pid == 0:
        mine = get_waker()
        mine.wake(KEY)
        good = mine is not parents and get_waker() is mine and not heard_by_parent
        os._exit(0 if good else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert get_waker() is parents


def test_threads_that_ask_at_the_same_time_get_the_same_one() -> None:
    room._current.clear()
    together = threading.Barrier(8)
    found = []

    def ask() -> None:
        together.wait()
        found.append(get_waker())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(set(map(id, found))) == 1
