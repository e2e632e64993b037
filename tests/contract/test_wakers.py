"""What holds of every waker, what of those that lose nothing by themselves, and
what of two that share a layer as two processes do."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from channels.layers import InMemoryChannelLayer

from django_streams.ids import stream_key
from django_streams.testing import LossyWaker
from django_streams.wake import LocalWaker, Waker
from django_streams.wake.channel_layer import ChannelLayerWaker
from django_streams.wake.postgres import PostgresWaker
from tests.ears import WITHIN, Ear
from tests.own_redis import LAYERS, redis_layer

from .waiting import eventually

KEY = stream_key("a stream")
OTHER = stream_key("another stream")

SHARED = [*LAYERS, "postgres"]
"""Those that reach other processes."""

RELIABLE = ["local", "in memory", *SHARED]


class WakerUnderTest:
    """A waker, and how a listener is known to be in place."""

    def __init__(self, waker: Waker) -> None:
        self.waker = waker
        self._listens = False

    def listen(self, key: str = KEY) -> tuple[Ear, Callable[[], None]]:
        """A listener that has heard nothing yet, and "stop listening"."""
        ear = Ear()
        stop = self.waker.listen(key, ear)
        if isinstance(self.waker, ChannelLayerWaker):
            ear.hears()  # once, when the layer listens too
        elif isinstance(self.waker, PostgresWaker) and not self._listens:
            ear.hears()  # the same, for whoever was first on the one channel
            self._listens = True
        ear.count = 0
        return ear, stop


def make(kind: str, request: pytest.FixtureRequest) -> WakerUnderTest:
    if kind == "local":
        return WakerUnderTest(LocalWaker())
    if kind == "lossy":
        lossy = LossyWaker(
            LocalWaker(), seed=1, lose=0.3, late=0.3, double=0.3, invent=0.3
        )
        return WakerUnderTest(lossy)
    if kind == "postgres":
        alias = request.getfixturevalue("postgresql_db")
        return WakerUnderTest(PostgresWaker(LocalWaker(), alias))
    maker: Callable[[], Any] = InMemoryChannelLayer
    if kind in LAYERS:
        url = request.getfixturevalue("redis_url")
        maker = redis_layer(kind, url, request.getfixturevalue("redis_prefix"))
    return WakerUnderTest(ChannelLayerWaker(LocalWaker(), maker, kind))


@pytest.fixture(params=[*RELIABLE, "lossy"])
def any_waker(request: pytest.FixtureRequest) -> Iterator[WakerUnderTest]:
    made = make(request.param, request)
    yield made
    made.waker.close()


@pytest.fixture(params=RELIABLE)
def reliable(request: pytest.FixtureRequest) -> Iterator[WakerUnderTest]:
    made = make(request.param, request)
    yield made
    made.waker.close()


@pytest.fixture(params=SHARED)
def pair(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[WakerUnderTest, WakerUnderTest]]:
    """Two wakers that have nothing in common but a server."""
    both = make(request.param, request), make(request.param, request)
    yield both
    for made in both:
        made.waker.close()


# --- of every waker -----------------------------------------------------------


def test_a_wake_that_nobody_listens_to_does_nothing(any_waker: WakerUnderTest) -> None:
    for _ in range(20):
        any_waker.waker.wake(KEY)


def test_who_has_stopped_listening_is_not_called(any_waker: WakerUnderTest) -> None:
    ear, stop = any_waker.listen()
    stop()
    for _ in range(20):
        any_waker.waker.wake(KEY)
    assert ear.count == 0


def test_stopping_twice_does_not_stop_another_listener(
    any_waker: WakerUnderTest,
) -> None:
    _, stop_one = any_waker.listen()
    ear = Ear()
    any_waker.waker.listen(KEY, ear)
    stop_one()
    stop_one()
    for _ in range(20):
        any_waker.waker.wake(KEY)
    ear.hears()


def test_a_callback_that_raises_is_logged_and_the_others_are_called(
    any_waker: WakerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("no ear")

    any_waker.waker.listen(KEY, fail)
    ear = Ear()
    any_waker.waker.listen(KEY, ear)

    def logged() -> list[logging.LogRecord]:
        return [r for r in caplog.records if r.exc_info and "no ear" in caplog.text]

    for _ in range(2):
        before = ear.count
        for _ in range(20):
            any_waker.waker.wake(KEY)
        ear.hears(before + 1)
        # In which order they are called is nobody's to say.
        eventually(logged)
    [record] = logged()
    assert record.levelno == logging.ERROR


def test_a_callback_may_listen_and_stop(any_waker: WakerUnderTest) -> None:
    late = Ear()

    def call() -> None:
        stop()
        any_waker.waker.listen(KEY, late)

    stop = any_waker.waker.listen(KEY, call)
    for _ in range(40):
        any_waker.waker.wake(KEY)
    late.hears()


def test_closing_twice_and_using_it_afterwards_is_harmless(
    any_waker: WakerUnderTest,
) -> None:
    _, stop = any_waker.listen()
    any_waker.waker.close()
    any_waker.waker.close()
    any_waker.waker.wake(KEY)
    any_waker.waker.listen(KEY, Ear())()
    stop()


def test_threads_may_wake_listen_and_stop_at_the_same_time(
    any_waker: WakerUnderTest,
) -> None:
    failures: list[BaseException] = []
    start = threading.Barrier(8)

    def work(number: int) -> None:
        try:
            start.wait()
            for turn in range(200):
                key = stream_key(f"{(number + turn) % 3}")
                stop = any_waker.waker.listen(key, Ear())
                any_waker.waker.wake(key)
                stop()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


# --- of those that lose nothing by themselves ---------------------------------


def test_listeners_here_have_been_called_when_a_wake_returns(
    reliable: WakerUnderTest,
) -> None:
    one, _ = reliable.listen()
    two = Ear()
    reliable.waker.listen(KEY, two)
    before = two.count
    reliable.waker.wake(KEY)
    assert one.count == 1
    assert two.count == before + 1


def test_a_wake_is_for_its_key_alone(reliable: WakerUnderTest) -> None:
    ear, _ = reliable.listen(KEY)
    other, _ = reliable.listen(OTHER)
    reliable.waker.wake(OTHER)
    assert (ear.count, other.count) == (0, 1)


def test_the_last_of_many_wakes_from_many_threads_is_heard(
    reliable: WakerUnderTest,
) -> None:
    seen = -1
    done = 0

    def look() -> None:
        nonlocal seen
        seen = done

    reliable.listen()
    reliable.waker.listen(KEY, look)
    count = threading.Lock()

    def work() -> None:
        nonlocal done
        for _ in range(100):
            with count:
                done += 1
            reliable.waker.wake(KEY)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert seen == done == 400


async def test_a_coroutine_hears_through_its_own_loop(
    reliable: WakerUnderTest,
) -> None:
    loop = asyncio.get_running_loop()
    news = asyncio.Event()

    def tell() -> None:
        loop.call_soon_threadsafe(news.set)

    reliable.waker.listen(KEY, tell)
    threading.Thread(target=reliable.waker.wake, args=(KEY,)).start()
    async with asyncio.timeout(WITHIN):
        await news.wait()


async def test_a_signal_handler_may_wake_inside_a_running_loop(
    reliable: WakerUnderTest,
) -> None:
    ear, _ = reliable.listen()
    before = signal.signal(signal.SIGUSR1, lambda *_: reliable.waker.wake(KEY))
    try:
        for _ in range(50):
            # The handler interrupts wakes and listens of this very thread.
            signal.raise_signal(signal.SIGUSR1)
            reliable.waker.wake(KEY)
            reliable.waker.listen(KEY, Ear())()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ear.count == 100


# --- of two that share a layer ------------------------------------------------


def test_a_wake_arrives_in_another_process(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    ear, _ = there.listen()
    for times in range(1, 6):
        here.waker.wake(KEY)
        ear.hears(times)


def test_one_subscription_serves_every_listener_of_a_process(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    first, stop_first = there.listen()
    second = Ear()
    there.waker.listen(KEY, second)
    assert second.count == 0, "the layer listened already"
    stop_first()
    here.waker.wake(KEY)
    second.hears()
    assert first.count == 0


def test_listening_again_after_the_last_stop_hears_again(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    for _ in range(50):
        ear = Ear()
        stop = there.waker.listen(KEY, ear)
        # The layer still listens, and this arrives; or it does so anew, and says it.
        here.waker.wake(KEY)
        ear.hears()
        stop()


def test_a_wake_of_this_process_is_heard_here_only_once(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    mine, _ = here.listen()
    theirs, _ = there.listen()
    here.waker.wake(KEY)
    theirs.hears()
    # What there sends now comes to both after the wake before it.
    there.waker.wake(KEY)
    mine.hears(2)
    there.waker.wake(KEY)
    mine.hears(3)
    assert mine.count == 3


def test_a_burst_on_one_stream_is_joined_and_its_end_is_heard(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    seen = []
    done = 0
    there.listen()
    last = threading.Event()

    def look() -> None:
        seen.append(done)
        if done == 2000:
            last.set()

    there.waker.listen(KEY, look)
    for number in range(1, 2001):
        done = number
        here.waker.wake(KEY)
    assert last.wait(WITHIN)
    assert len(seen) < 1000, "one wake on its way at a time"


def test_pending_wakes_leave_before_a_waker_is_closed(
    pair: tuple[WakerUnderTest, WakerUnderTest],
) -> None:
    here, there = pair
    keys = [stream_key(str(number)) for number in range(30)]
    ears = [there.listen(key)[0] for key in keys]
    for key in keys:
        here.waker.wake(key)
    here.waker.close()
    for ear in ears:
        ear.hears()
