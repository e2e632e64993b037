"""Which leases a process renews, and when; the clock is the test's."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from django_streams.exceptions import StreamFencedError
from django_streams.keeper import Keeper
from django_streams.wake.local import LocalWaker

LEASE = 3.0
"""Renewed every second."""


@dataclass(eq=False)
class Producer:
    """A writer's side of it, without a database."""

    failure: Exception | None = None
    renewed: float = -1.0
    renewals: int = 0
    cancelled: bool = False
    lease: float | None = LEASE
    renews: bool = True
    # A keeper's own thread would look after it otherwise.
    keeps: bool = False
    alias: str = "default"
    key: str = "k"
    pk: int = 1
    stream_id: str = "s"

    def keep_alive(self) -> None:
        self.renewals += 1
        if self.failure is not None:
            raise self.failure

    def ask_cancelled(self, pks: Sequence[int]) -> set[int]:
        if self.failure is not None:
            raise self.failure
        return set()

    def note_cancelled(self) -> None:
        self.cancelled = True


class Clock:
    """A keeper with one producer, looked at when the test says so."""

    def __init__(self, producer: Producer) -> None:
        self.keeper = Keeper()
        self.keeper.add(producer, LocalWaker())
        self.began = time.monotonic() + 0.1

    def at(self, seconds: float) -> None:
        self.keeper._renew(self.began + seconds)


def test_a_silent_producer_is_renewed_every_third_of_its_lease() -> None:
    producer = Producer()
    clock = Clock(producer)
    for seconds in (0.5, 1.0, 1.5, 2.1, 2.2):
        clock.at(seconds)
    assert producer.renewals == 2


def test_who_appends_is_renewed_once_it_has_said_nothing_for_that_long() -> None:
    producer = Producer()
    clock = Clock(producer)
    for seconds in (0.9, 1.8, 2.7):
        producer.renewed = clock.began + seconds - 0.05
        clock.at(seconds)
    assert producer.renewals == 0
    clock.at(3.6)
    assert producer.renewals == 0
    clock.at(3.7)
    assert producer.renewals == 1


def test_a_fenced_producer_is_let_go() -> None:
    producer = Producer(StreamFencedError("no", stream_id="s"))
    clock = Clock(producer)
    for seconds in (1.0, 2.0, 3.0):
        clock.at(seconds)
    assert producer.renewals == 1


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return [one.levelno for one in caplog.records].count(logging.WARNING)


def test_an_outage_is_said_once_and_the_renewals_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    producer = Producer(OSError("away"))
    clock = Clock(producer)
    for seconds in range(1, 5):
        clock.at(seconds)
    assert (producer.renewals, warnings(caplog)) == (4, 1)
    producer.failure = None
    clock.at(5)
    producer.failure = OSError("away again")
    clock.at(6)
    assert (producer.renewals, warnings(caplog)) == (6, 2)


def test_an_outage_is_said_once_where_nobody_can_tell_who_must_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away, back = OSError("away"), None
    producer = Producer()
    keeper = Clock(producer).keeper
    producer.keeps = True
    for failure in (away, away, back, away, away):
        producer.failure = failure
        keeper._ask()
    assert warnings(caplog) == 2
