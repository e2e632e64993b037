"""What threads leave for the one that talks to the layer."""

from __future__ import annotations

import threading

import pytest

from django_streams.wake import marks
from django_streams.wake.marks import Marks


def test_a_key_waits_to_be_sent_once_however_often_it_is_woken() -> None:
    made = Marks()
    assert made.send("a")
    assert not made.send("a")
    assert made.send("b")
    assert made.take_pending() == ["a", "b"]
    assert made.take_pending() == []
    assert made.send("a")


def test_keys_are_sent_in_the_order_they_came() -> None:
    made = Marks()
    for key in ("c", "a", "b", "a", "c"):
        made.send(key)
    assert made.take_pending() == ["c", "a", "b"]


def test_what_waits_while_a_layer_is_down_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(marks, "MOST_PENDING", 3)
    made = Marks()
    assert [made.send(key) for key in "abcd"] == [True, True, True, False]
    assert made.take_pending() == ["a", "b", "c"]
    assert made.send("d")


def test_only_the_first_follower_and_the_last_change_a_membership() -> None:
    made = Marks()
    assert made.follow("a")
    assert not made.follow("a")
    assert made.take_changed() == ["a"]
    assert not made.unfollow("a")
    assert made.take_changed() == []
    assert made.follows("a")
    assert made.unfollow("a")
    assert made.take_changed() == ["a"]
    assert not made.follows("a")
    assert made.followed() == []


def test_a_signal_handler_may_interrupt_the_thread_that_holds_the_lock() -> None:
    made = Marks()

    def interrupted() -> None:
        with made._lock:
            made.send("a")
            made.follow("b")
            made.unfollow("b")

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert made.take_pending() == ["a"]


def test_one_unfollow_too_many_changes_nothing() -> None:
    made = Marks()
    assert not made.unfollow("a")
    assert made.follow("a")
    assert made.followed() == ["a"]
