"""Wakes from every kind of code, into every kind of process."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.management import BaseCommand, call_command

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, get_waker
from django_streams.wake.channel_layer import ChannelLayerWaker
from tests import process
from tests.ears import Ear
from tests.own_redis import LAYERS, SETTINGS, OwnRedis, redis_layer
from tests.process import Child
from tests.settings import RUN

pytestmark = pytest.mark.needs("redis-server", "redis")

WAKES = 500
FEW = 12
"""Connections of both sides, and the questions about them."""

SOME, HALF, END = (stream_key(name) for name in ("some", "half", "end"))


@pytest.fixture(scope="module")
def own() -> Iterator[OwnRedis]:
    with OwnRedis() as server:
        yield server


@pytest.fixture(params=list(LAYERS))
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def env(own: OwnRedis, kind: str) -> dict[str, str]:
    """Has a child use *kind* on *own* Redis by its settings, as a project does."""
    return {"DJANGO_SETTINGS_MODULE": SETTINGS[kind], "DS_TEST_REDIS_URL": own.url}


@pytest.fixture
def waker(own: OwnRedis, kind: str) -> Iterator[ChannelLayerWaker]:
    """This process's waker on the same layer as the children's."""
    make = redis_layer(kind, own.url, f"ds_test_{RUN}")
    made = ChannelLayerWaker(LocalWaker(), make, kind)
    yield made
    made.close()


def listening(waker: ChannelLayerWaker, key: str) -> Ear:
    """An ear that the layer knows of."""
    ear = Ear()
    waker.listen(key, ear)
    ear.hears()
    ear.count = 0
    return ear


# --- what the children do -----------------------------------------------------


def in_two_halves(wake: Callable[[int], None]) -> None:
    """Half of the wakes, a word of the parent's, the other half."""
    for part, key in enumerate((HALF, END)):
        for number in range(WAKES // 2):
            wake(part * WAKES // 2 + number)
            time.sleep(0.001)  # or all of them would be joined into one
        get_waker().wake(key)
        if key == HALF:
            process.hear()


def wake_some(number: int) -> None:
    get_waker().wake(SOME)


def from_plain_threads() -> None:
    def wake(number: int) -> None:
        thread = threading.Thread(target=wake_some, args=(number,))
        thread.start()
        thread.join()

    in_two_halves(wake)


def from_a_forked_worker() -> None:
    # The parent has a waker whose thread and connections the fork leaves behind.
    get_waker().wake(SOME)
    pid = os.fork()
    if pid == 0:
        in_two_halves(wake_some)
        process.hear()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def from_a_management_command() -> None:
    class Command(BaseCommand):
        def handle(self, *args: Any, **options: Any) -> None:
            in_two_halves(wake_some)

    # Nobody closes anything: the process just ends.
    call_command(Command())


def from_a_loop_for_every_call() -> None:
    async def wake(number: int) -> None:
        get_waker().wake(SOME)

    in_two_halves(async_to_sync(wake))


async def from_async_tasks() -> None:
    async def wake(number: int) -> None:
        get_waker().wake(SOME)

    for part, key in enumerate((HALF, END)):
        async with asyncio.TaskGroup() as tasks:
            for number in range(WAKES // 2):
                tasks.create_task(wake(part * WAKES // 2 + number))
                await asyncio.sleep(0.001)
        get_waker().wake(key)
        if key == HALF:
            await asyncio.to_thread(process.hear)


async def from_a_signal_handler() -> None:
    signal.signal(signal.SIGUSR1, lambda *_: get_waker().wake(SOME))
    for key in (HALF, END):
        for _ in range(WAKES // 2):
            os.kill(os.getpid(), signal.SIGUSR1)
            await asyncio.sleep(0.001)
        get_waker().wake(key)
        if key == HALF:
            await asyncio.to_thread(process.hear)


def listen_and_say() -> None:
    """Says "ready", then a word for each wake."""
    waker, ear = get_waker(), Ear()
    waker.listen(SOME, ear)
    ear.hears()
    process.say("ready")
    heard = 1
    while True:
        ear.hears(heard + 1)
        heard += 1
        process.say(heard - 1)


def listen_and_fork(turns: int) -> None:
    """Parent and forked child listen to one stream; both count all the wakes."""
    mine = Ear()
    get_waker().listen(SOME, mine)
    mine.hears()
    up, down = os.pipe()
    pid = os.fork()
    if pid == 0:
        theirs = Ear()
        get_waker().listen(SOME, theirs)
        theirs.hears()
        os.write(down, b"r")
        theirs.hears(1 + turns)
        os._exit(0)
    os.read(up, 1)
    process.say("ready")
    for turn in range(1, turns + 1):
        mine.hears(1 + turn)
        process.say(turn)
    assert os.waitpid(pid, 0)[1] == 0
    process.say("both")


# --- and what is to be seen ---------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        from_plain_threads,
        from_a_forked_worker,
        from_a_management_command,
        from_a_loop_for_every_call,
        from_async_tasks,
        from_a_signal_handler,
    ],
    ids=lambda source: source.__name__.replace("_", " "),
)
def test_wakes_leave_from_all_kinds_of_code_over_the_same_few_connections(
    own: OwnRedis,
    waker: ChannelLayerWaker,
    env: dict[str, str],
    source: Callable[[], Any],
) -> None:
    some, half, end = (listening(waker, key) for key in (SOME, HALF, END))
    with Child(source, env=env) as child:
        half.hears()
        opened = own.connections_ever()
        child.say("go on")
        end.hears()
        # A pool may still grow by a few; a loop that leaks adds one a wake.
        assert own.connections_ever() - opened < FEW
        child.say("end")
        assert child.wait() == 0
        assert child.stderr() == "", "no line about a loop that is closed"
    assert some.count > 10


def test_every_process_that_listens_hears(
    waker: ChannelLayerWaker, env: dict[str, str]
) -> None:
    with Child(listen_and_say, env=env) as one, Child(listen_and_say, env=env) as two:
        for child in (one, two):
            assert child.hear() == "ready"
        for turn in range(1, 11):
            waker.wake(SOME)
            assert one.hear() == turn
            assert two.hear() == turn


def test_a_listener_that_was_killed_does_not_hold_the_others_up(
    waker: ChannelLayerWaker, env: dict[str, str]
) -> None:
    with Child(listen_and_say, env=env) as one, Child(listen_and_say, env=env) as two:
        for child in (one, two):
            assert child.hear() == "ready"
        one.kill()
        for turn in range(1, 11):
            waker.wake(SOME)
            assert two.hear() == turn


def test_a_forked_process_takes_no_wakes_away_from_its_parent(
    waker: ChannelLayerWaker, env: dict[str, str]
) -> None:
    turns = 30
    with Child(listen_and_fork, env=env, turns=turns) as child:
        assert child.hear() == "ready"
        for turn in range(1, turns + 1):
            waker.wake(SOME)
            assert child.hear() == turn
        assert child.hear() == "both"
        assert child.wait() == 0
