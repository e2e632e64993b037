"""Wakes inside one process."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import pytest

from django_streams.wake import LocalWaker
from tests.unit.forks import exit_code


def test_one_callback_that_listens_twice_is_called_twice() -> None:
    waker, calls = LocalWaker(), []
    stop = waker.listen("key", lambda: calls.append(1))
    same = calls.append
    waker.listen("key", lambda: same(2))
    waker.listen("key", lambda: same(2))
    waker.wake("key")
    assert sorted(calls) == [1, 2, 2]
    stop()
    waker.wake("key")
    assert sorted(calls) == [1, 2, 2, 2, 2]


def test_nothing_is_kept_of_a_key_without_listeners() -> None:
    waker = LocalWaker()
    stops = [waker.listen("key", lambda: None) for _ in range(3)]
    for stop in stops:
        stop()
    waker.wake("never heard of")
    assert waker._listeners == {}


def test_a_finaliser_may_stop_listening_in_the_middle_of_a_listen() -> None:
    waker, calls = LocalWaker(), []
    stop = waker.listen("key", lambda: None)

    class Interrupting(dict[Any, Any]):
        def setdefault(self, *arguments: Any) -> Any:
            found = super().setdefault(*arguments)
            stop()  # as the collector might, in this thread, with the lock held
            return found

    waker._listeners = Interrupting(waker._listeners)
    waker.listen("key", lambda: calls.append(1))
    waker.wake("key")
    assert calls == [1]


def test_an_error_in_two_threads_at_once_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waker, both = LocalWaker(), threading.Barrier(2)

    def fail() -> None:
        both.wait(10)
        raise RuntimeError("no ear")

    waker.listen("key", fail)
    for _ in range(20):
        threads = [threading.Thread(target=waker.wake, args=("key",)) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
    assert len(caplog.records) == 1


def test_a_wake_waits_for_no_lock() -> None:
    waker, calls = LocalWaker(), []
    waker.listen("key", lambda: calls.append(1))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with waker._lock:
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    woken = threading.Thread(target=waker.wake, args=("key",))
    woken.start()
    woken.join(10)
    assert calls == [1]
    done.set()
    thread.join(10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_listener_of_the_parent_can_be_dropped_in_a_child_whatever_is_locked() -> (
    None
):
    waker = LocalWaker()
    stop = waker.listen("key", lambda: None)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with waker._lock:
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


def test_a_closed_waker_lets_go_of_its_listeners() -> None:
    class Ear:
        def __call__(self) -> None:
            raise AssertionError("called after close")

        def __del__(self) -> None:
            gone.set()

    gone = threading.Event()
    waker = LocalWaker()
    stop = waker.listen("key", Ear())
    waker.close()
    waker.wake("key")
    stop()
    del stop
    gc.collect()
    assert gone.is_set()
