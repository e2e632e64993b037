"""One process's end of a layer: who follows, and what a fork leaves alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
from channels.layers import InMemoryChannelLayer

from django_streams.ids import stream_key
from django_streams.wake import LocalWaker
from django_streams.wake.channel_layer import ChannelLayerWaker
from django_streams.wake.marks import Marks
from tests.ears import Ear
from tests.unit.forks import exit_code

KEY = stream_key("a stream")


@pytest.fixture
def waker() -> Iterator[ChannelLayerWaker]:
    made = ChannelLayerWaker(LocalWaker(), InMemoryChannelLayer)
    yield made
    made.close()


def marks_of(waker: ChannelLayerWaker) -> Marks:
    return waker._ends[os.getpid()].marks


def test_stopping_twice_counts_as_one_follower_less(waker: ChannelLayerWaker) -> None:
    stop = waker.listen(KEY, Ear())
    stop_other = waker.listen(KEY, Ear())
    stop()
    stop()
    assert marks_of(waker).follows(KEY)
    stop_other()
    assert not marks_of(waker).follows(KEY)


def test_a_process_has_one_thread_for_all_it_wakes_and_follows(
    waker: ChannelLayerWaker,
) -> None:
    for number in range(20):
        key = stream_key(str(number))
        ear = Ear()
        waker.listen(key, ear)
        waker.wake(key)
        ear.hears()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("django-streams-wake") == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_may_drop_what_its_parent_follows_whatever_is_locked(
    waker: ChannelLayerWaker,
) -> None:
    stop = waker.listen(KEY, Ear())
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with marks_of(waker)._lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    pid = os.fork()
    if pid == 0:
        stop()
        os._exit(7)
    try:
        assert exit_code(pid) == 7
    finally:
        done.set()
        thread.join(10)
    assert marks_of(waker).follows(KEY)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_wakes_and_listens_through_an_end_of_its_own(
    waker: ChannelLayerWaker,
) -> None:
    ear = Ear()
    waker.listen(KEY, ear)
    ear.hears()
    pid = os.fork()
    if pid == 0:
        mine = Ear()
        waker.listen(stream_key("the child's"), mine)
        try:
            mine.hears()
        except AssertionError:
            os._exit(1)
        os._exit(7)
    assert exit_code(pid) == 7
