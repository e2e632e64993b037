"""The waker that does its worst does what it was told."""

from __future__ import annotations

from functools import partial

import pytest

from django_streams.testing import LossyWaker
from django_streams.wake import LocalWaker


def heard(wakes: str, **mishaps: float) -> tuple[LossyWaker, str]:
    """What a listener to each letter heard, in order, of *wakes*."""
    waker = LossyWaker(LocalWaker(), seed=3, **mishaps)  # type: ignore[arg-type]
    calls: list[str] = []
    for key in "abc":
        waker.listen(key, partial(calls.append, key))
    for key in wakes:
        waker.wake(key)
    return waker, "".join(calls)


def test_without_mishaps_it_passes_everything_on() -> None:
    assert heard("abcab")[1] == "abcab"


def test_it_can_lose_every_wake() -> None:
    waker, calls = heard("abcab", lose=1)
    assert calls == ""
    assert waker.lost == 5


def test_it_loses_about_as_many_as_it_was_told() -> None:
    waker, calls = heard("a" * 1000, lose=0.3)
    assert 200 < waker.lost < 400
    assert len(calls) == 1000 - waker.lost


def test_it_can_double_every_wake() -> None:
    waker, calls = heard("abc", double=1)
    assert calls == "aabbcc"
    assert waker.doubled == 3


def test_late_wakes_come_out_of_order_and_the_last_with_release() -> None:
    waker, calls = heard("abcabcabcabc", late=0.5)
    assert waker.held > 0
    assert calls != "abcabcabcabc"[: len(calls)], "out of order"
    waker, calls = heard("abc", late=1, late_by=100)
    assert calls == ""
    again: list[str] = []
    waker.listen("a", lambda: again.append("a"))
    waker.release()
    waker.release()
    assert again == ["a"]


def test_invented_wakes_are_for_keys_that_somebody_listens_to() -> None:
    waker, calls = heard("x" * 50, invent=1)
    assert waker.invented == 50
    assert set(calls) == {"a", "b", "c"}


def test_nothing_is_invented_for_who_has_stopped() -> None:
    waker = LossyWaker(LocalWaker(), seed=3, invent=1)
    stop = waker.listen("a", lambda: None)
    other = waker.listen("a", lambda: None)
    stop()
    stop()
    waker.wake("x")
    assert waker.invented == 1
    other()
    waker.wake("x")
    assert waker.invented == 1


def test_the_same_seed_gives_the_same_mishaps() -> None:
    mishaps = {"lose": 0.3, "late": 0.3, "double": 0.3, "invent": 0.3}
    assert heard("abc" * 50, **mishaps)[1] == heard("abc" * 50, **mishaps)[1]


def test_closing_drops_what_was_held_back() -> None:
    waker, calls = heard("abc", late=1, late_by=100)
    waker.close()
    waker.release()
    assert calls == ""


@pytest.mark.parametrize("wrong", [{"lose": -0.1}, {"double": 1.5}, {"late_by": 0}])
def test_chances_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        heard("", **wrong)
