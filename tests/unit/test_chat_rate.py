"""How fast a client may send."""

from __future__ import annotations

from django_streams.chat.rate import SAVED, Rate


def taken(rate: Rate, count: int, start: float, every: float = 0.0) -> int:
    return sum(rate.allows(start + at * every) for at in range(count))


def test_a_steady_client_within_the_rate_is_never_stopped() -> None:
    assert taken(Rate(10.0), 1000, start=5.0, every=0.1) == 1000


def test_what_a_client_kept_while_it_was_offline_may_come_at_once() -> None:
    rate = Rate(10.0)
    assert taken(rate, 200, start=0.0) == 10 * SAVED
    # Then it has to wait for what it spent.
    assert taken(rate, 100, start=1.0) == 10


def test_permits_are_not_saved_for_ever() -> None:
    rate = Rate(10.0)
    assert taken(rate, 1, start=0.0) == 1
    assert taken(rate, 1000, start=1e9) == 10 * SAVED


def test_without_a_rate_everything_is_taken() -> None:
    assert taken(Rate(None), 10_000, start=0.0) == 10_000
