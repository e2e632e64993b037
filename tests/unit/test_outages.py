"""When a process takes it that its database was away; the store is none."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_streams.exceptions import StreamUnavailableError
from django_streams.store import outages, retry
from django_streams.store.memory import MemoryStore


class Away(MemoryStore):
    """Fails as it is told to."""

    def transient(self, error: Exception) -> bool:
        return isinstance(error, OSError)

    def away(self, error: Exception) -> bool:
        return isinstance(error, ConnectionError)


@pytest.fixture(autouse=True)
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_seen", {})


def failing(*errors: Exception) -> Any:
    left = list(errors)

    def work() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return work


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("error", "noted"), [(ConnectionError(), True), (TimeoutError(), False)]
)
def test_an_outage_is_what_nobody_can_write_through_and_no_lost_race(
    error: Exception, noted: bool, clock: list[float]
) -> None:
    for _ in range(4):
        assert retry.persist(Away(alias="somewhere"), failing(error)) == "done"
        clock[0] += 1.0
    assert outages.recent("somewhere", 5.0) is noted
    assert not outages.recent("elsewhere", 5.0)
    # So short an outage let no longer lease lapse.
    assert not outages.recent("somewhere", 7.0)


def test_two_signs_far_apart_are_two_outages(clock: list[float]) -> None:
    outages.note("somewhere")
    clock[0] += 60.0
    outages.note("somewhere")
    assert not outages.recent("somewhere", 5.0)


def test_a_call_is_an_outage_during_which_leases_were_over(
    clock: list[float],
) -> None:
    def slow(seconds: float) -> str:
        clock[0] += seconds
        return "done"

    retry.persist(Away(alias="somewhere"), lambda: slow(2.0))
    assert not outages.recent("somewhere", 5.0)
    clock[0] += 60.0
    retry.persist(Away(alias="somewhere"), lambda: slow(3.0))
    assert outages.recent("somewhere", 5.0)
    clock[0] += 5.0 + outages.LONGEST_PAUSE
    assert not outages.recent("somewhere", 5.0)


def test_who_is_in_a_hurry_tries_once_and_no_more() -> None:
    hurry = threading.Event()
    hurry.set()
    assert retry.persist(Away(alias="somewhere"), failing(), hurry=hurry) == "done"
    with pytest.raises(StreamUnavailableError, match="did not take the call"):
        retry.persist(Away(alias="somewhere"), failing(ConnectionError()), hurry=hurry)
