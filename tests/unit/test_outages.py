"""When a process takes it that its database was away; the store is none."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from django_streams import conf
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


@pytest.mark.parametrize(
    ("error", "noted"), [(ConnectionError(), True), (TimeoutError(), False)]
)
def test_an_outage_is_what_nobody_can_write_through_and_no_lost_race(
    error: Exception, noted: bool
) -> None:
    assert retry.persist(Away(alias="somewhere"), failing(error)) == "done"
    assert outages.recent("somewhere", 5.0) is noted
    assert not outages.recent("elsewhere", 5.0)


def test_so_is_a_call_during_which_leases_were_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slow(seconds: float) -> str:
        clock[0] += seconds
        return "done"

    lease = conf.get().TURN_LEASE
    retry.persist(Away(alias="somewhere"), lambda: slow(lease / 2))
    assert not outages.recent("somewhere", lease)
    retry.persist(Away(alias="somewhere"), lambda: slow(lease / 2 + 0.1))
    assert outages.recent("somewhere", lease)
    clock[0] += lease + outages.LONGEST_PAUSE
    assert not outages.recent("somewhere", lease)


def test_who_is_in_a_hurry_tries_once_and_no_more() -> None:
    hurry = threading.Event()
    hurry.set()
    assert retry.persist(Away(alias="somewhere"), failing(), hurry=hurry) == "done"
    with pytest.raises(StreamUnavailableError, match="did not take the call"):
        retry.persist(Away(alias="somewhere"), failing(ConnectionError()), hurry=hurry)
