"""Wakes through PostgreSQL from every kind of code, into other processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import override_settings

from django_streams import Streams
from django_streams.ids import stream_key
from django_streams.wake import LocalWaker, get_waker
from django_streams.wake.postgres import PostgresWaker
from tests import process
from tests.contract.waiting import eventually
from tests.ears import Ear
from tests.process import Child
from tests.settings_wake_postgres import DJANGO_STREAMS
from tests.unit.test_wake_postgres import heard, sessions

from .test_wakes_between_processes import (
    END,
    HALF,
    SOME,
    from_a_forked_worker,
    from_a_loop_for_every_call,
    from_a_management_command,
    listen_and_fork,
    listen_and_say,
)

ENV = {"DJANGO_SETTINGS_MODULE": "tests.settings_wake_postgres"}


@pytest.fixture
def waker(postgresql_db: str) -> Iterator[PostgresWaker]:
    """This process's waker on the same database as the children's."""
    made = PostgresWaker(LocalWaker(), postgresql_db)
    yield made
    made.close()


@pytest.mark.parametrize(
    "source",
    [from_a_forked_worker, from_a_management_command, from_a_loop_for_every_call],
    ids=lambda source: source.__name__.replace("_", " "),
)
def test_wakes_leave_from_many_kinds_of_code_over_one_connection(
    postgresql_db: str, waker: PostgresWaker, source: Callable[[], Any]
) -> None:
    some, half, end = (heard_too(waker, key) for key in (SOME, HALF, END))
    with Child(source, env=ENV) as child:
        half.hears()
        assert len(sessions(postgresql_db)) <= 3, "mine, the child's, its worker's"
        child.say("go on")
        end.hears()
        assert len(sessions(postgresql_db)) <= 3
        child.say("end")
        assert child.wait() == 0
        assert child.stderr() == "", "no line about a loop or connection left open"
    assert some.count > 10
    eventually(lambda: len(sessions(postgresql_db)) == 1)


def heard_too(waker: PostgresWaker, key: str) -> Ear:
    """An ear that other processes reach; the first one waits for the server."""
    if not waker._local._listeners:
        return heard(waker, key)
    ear = Ear()
    waker.listen(key, ear)
    return ear


def test_every_process_that_listens_hears_and_a_killed_one_holds_nobody_up(
    waker: PostgresWaker,
) -> None:
    with Child(listen_and_say, env=ENV) as one, Child(listen_and_say, env=ENV) as two:
        for child in (one, two):
            assert child.hear() == "ready"
        for turn in range(1, 6):
            waker.wake(SOME)
            assert one.hear() == turn
            assert two.hear() == turn
        one.kill()
        for turn in range(6, 11):
            waker.wake(SOME)
            assert two.hear() == turn


def test_a_forked_process_takes_no_wakes_away_from_its_parent(
    waker: PostgresWaker,
) -> None:
    turns = 20
    with Child(listen_and_fork, env=ENV, turns=turns) as child:
        assert child.hear() == "ready"
        for turn in range(1, turns + 1):
            waker.wake(SOME)
            assert child.hear() == turn
        assert child.hear() == "both"
        assert child.wait() == 0


def fork_and_leave() -> None:
    """A child that wakes and ends in order, with all finalisers."""
    key = stream_key("parents")
    ear = Ear()
    get_waker().listen(key, ear)
    ear.hears()
    pid = os.fork()
    if pid == 0:
        get_waker().wake(SOME)
        return
    assert os.waitpid(pid, 0)[1] == 0
    process.say("ready")
    ear.hears(2)
    process.say("heard")


def test_a_forked_process_that_ends_leaves_its_parent_connected(
    waker: PostgresWaker,
) -> None:
    ear = heard(waker, SOME)
    with Child(fork_and_leave, env=ENV) as child:
        ear.hears()
        assert child.hear() == "ready"
        waker.wake(stream_key("parents"))
        assert child.hear() == "heard"
        assert child.wait() == 0
        assert child.stderr() == ""


NO_POLL = {**DJANGO_STREAMS, "POLL_MIN": 60.0, "POLL_MAX": 60.0}


@override_settings(DJANGO_STREAMS=NO_POLL)
def append_when_told(alias: str) -> None:
    writer = Streams(using=alias).open("followed")
    process.say("opened")
    for number in iter(process.hear, "end"):
        writer.append(number)
    writer.close()


@override_settings(DJANGO_STREAMS=NO_POLL)
def follow_without_polls(alias: str) -> None:
    for chunk in Streams(using=alias).read("followed"):
        process.say(chunk.chunk)
    process.say("done")


def test_a_reader_in_another_process_needs_no_poll(postgresql_db: str) -> None:
    with Child(append_when_told, env=ENV, alias=postgresql_db) as producer:
        assert producer.hear() == "opened"
        with Child(follow_without_polls, env=ENV, alias=postgresql_db) as reader:
            for number in range(20):
                producer.say(number)
                assert reader.hear() == number
            producer.say("end")
            assert reader.hear() == "done"
