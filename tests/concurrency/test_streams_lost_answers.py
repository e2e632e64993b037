"""A connection lost at any statement or commit, and the call that goes on.

The connection is closed in this process, before the statement leaves or before
its answer is seen; ``test_streams_cut`` cuts real ones on the wire.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connections, transaction
from pytest_django import Settings

from django_streams import Streams
from django_streams.exceptions import StreamsError, StreamUnavailableError
from django_streams.ids import stream_key
from django_streams.store import get_store
from django_streams.testing.faults import FaultPoint, Faults

from .logs import Log, clear, stored
from .operations import COMPLETED, ERRORED, OPERATIONS, SETTINGS, Found, look

STREAM = "one"


@pytest.fixture(autouse=True)
def small_blocks(settings: Settings) -> None:
    settings.DJANGO_STREAMS = SETTINGS


@pytest.fixture(params=["default", "postgresql", "mariadb"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


def reset(alias: str) -> None:
    clear(alias)
    User.objects.using(alias).all().delete()


def eventually_lapsed(alias: str) -> None:
    """Wait until followers may settle the stream, one lease after the lapse."""
    store = get_store(alias)
    deadline = time.monotonic() + 10
    while not ((head := store.head(stream_key(STREAM))) and head.lapsed):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("name", [n for n in OPERATIONS if "with" not in n])
def test_a_call_whose_connection_is_lost_takes_effect_once(
    alias: str, name: str
) -> None:
    operation = OPERATIONS[name]
    for at in itertools.count(1):
        steps = operation.run(alias, STREAM)
        next(steps)
        with Faults(alias, at=at) as faults:
            next(steps, None)
        assert look(alias, STREAM) == operation.done, f"{faults.hit} ({at})"
        if faults.hit is None:
            break
        reset(alias)
    assert at > 2


@pytest.mark.parametrize("discard", [False, True])
def test_a_settlement_whose_connection_is_lost_has_its_effect_once(
    alias: str, discard: bool
) -> None:
    """Also where the loss meets a statement of ``commit``, which is run again."""
    log = None if discard else Log(COMPLETED, ["a"])
    twice = set()

    for at in itertools.count(1):
        runs = itertools.count(1)
        ran = 0

        def commit(runs: Iterator[int] = runs) -> None:
            nonlocal ran
            ran = next(runs)
            User.objects.using(alias).create(username=STREAM)

        writer = Streams(using=alias).open(STREAM)
        writer.append("a")
        with Faults(alias, at=at) as faults:
            assert writer.close(commit=commit, discard=discard) is True
        if ran > 1:
            twice.add(str(faults.hit))
        assert look(alias, STREAM) == Found(log, effect=True), faults.hit
        assert writer.close(commit=commit, discard=discard) is False
        if faults.hit is None:
            break
        reset(alias)
    assert at > 6
    assert {f"{moment} INSERT auth_user" for moment in ("before", "after")} <= twice


def test_a_writer_that_gave_up_finds_out_when_it_is_called_again(
    alias: str, settings: Settings
) -> None:
    """Whatever it is called with: the same chunk, another one, or the end."""
    settings.DJANGO_STREAMS = {**SETTINGS, "RETRY_SECONDS": 0.0}
    streams = Streams(using=alias)
    for next_call in ("the same", "another", "close"):
        for at in itertools.count(1):
            writer, other = streams.open(STREAM), streams.open(STREAM)
            writer.append("a")
            other.append("b")
            with Faults(alias, at=at) as faults:
                try:
                    writer.append("lost")
                except StreamUnavailableError:
                    other.append("c")
                else:
                    break
            there = stored(alias, STREAM)
            assert there is not None
            lost = "lost" in there.chunks
            expected = ["a", "b", "lost", "c"] if lost else ["a", "b", "c"]
            if next_call == "the same":
                assert writer.append("lost") == (2 if lost else 3)
                expected += [] if lost else ["lost"]
            elif next_call == "another":
                assert writer.append("d") == len(expected)
                expected += ["d"]
            assert writer.close() is True
            assert stored(alias, STREAM) == Log(COMPLETED, expected), faults.hit
            reset(alias)
        assert at > 2
        reset(alias)


@pytest.mark.parametrize("times", [1, 3, 10])
def test_chunks_pushed_before_a_loss_go_out_first_afterwards(
    alias: str, settings: Settings, times: int
) -> None:
    """Also when their retry is lost too, and the one after it."""
    settings.DJANGO_STREAMS = {**SETTINGS, "RETRY_SECONDS": 0.0}
    streams = Streams(using=alias)
    failures = 0
    for at in itertools.count(1):
        writer = streams.open(STREAM)
        with Faults(alias, at=at, times=times) as faults:
            pushed = 0
            while pushed < 12:
                try:
                    writer.push(pushed)
                except StreamUnavailableError:
                    failures += 1
                else:
                    pushed += 1
            for _ in range(times):
                try:
                    writer.flush()
                except StreamUnavailableError:
                    failures += 1
        assert writer.append(12) == 12
        assert writer.close() is True
        assert stored(alias, STREAM) == Log(COMPLETED, list(range(13))), faults.hit
        reset(alias)
        if faults.hit is None:
            break
    assert failures > 0 or times == 1


@pytest.mark.parametrize("times", [1, 10])
def test_what_is_dropped_after_a_loss_is_whole_writes_at_the_end(
    alias: str, settings: Settings, times: int
) -> None:
    """The handle knows how much the log took, and goes on behind it."""
    settings.DJANGO_STREAMS = {**SETTINGS, "RETRY_SECONDS": 0.0}
    streams = Streams(using=alias)
    dropped = 0
    for at in itertools.count(1):
        writer = streams.open(STREAM)
        with Faults(alias, at=at, times=times) as faults:
            try:
                for pushed in range(12):
                    writer.push(pushed)
                writer.flush()
            except StreamUnavailableError:
                pass
            for _ in range(times):
                try:
                    writer.drop()
                except StreamUnavailableError:
                    continue
        writer.drop()
        kept = writer.cursor
        dropped += 12 - kept
        assert writer.append("end") == kept
        assert writer.close() is True
        found = stored(alias, STREAM)
        assert found == Log(COMPLETED, [*range(kept), "end"]), faults.hit
        reset(alias)
        if faults.hit is None:
            break
    assert kept == 12
    assert dropped > 0 or times == 1


@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_handle_goes_on_after_a_transaction_whose_connection_was_lost(
    alias: str, times: int
) -> None:
    """Inside it nothing is retried; what follows begins where the log ends."""
    streams = Streams(using=alias)
    for at in itertools.count(1):
        writer, other = streams.open(STREAM), streams.open(STREAM)
        other.append("theirs")
        with Faults(alias, at=at, times=times) as faults:
            try:
                with transaction.atomic(using=alias):
                    writer.append("a")
                    writer.append("b")
            except (OperationalError, StreamsError):
                # Its connection is the caller's to give up.
                connections[alias].close()
            seq = writer.append("c")
        assert writer.close() is True
        log = stored(alias, STREAM)
        assert log is not None
        assert log.chunks in (["theirs", "a", "b", "c"], ["theirs", "c"]), faults.hit
        assert log.chunks[seq] == "c", faults.hit
        reset(alias)
        if faults.hit is None:
            break


@pytest.mark.parametrize("alone", [False, True])
def test_a_follower_that_loses_its_connection_still_settles_a_lapsed_stream(
    alias: str, settings: Settings, alone: bool
) -> None:
    """With a tail that it shares, or on the caller's connection."""
    settings.DJANGO_STREAMS = {**SETTINGS, "SINGLE_CONNECTION": alone}
    streams = Streams(using=alias)
    for at in itertools.count(1):
        streams.open(STREAM, lease=0.001).append("a")
        eventually_lapsed(alias)
        with Faults(alias, at=at) as faults:
            assert [c.chunk for c in streams.read(STREAM)] == ["a"]
        assert stored(alias, STREAM) == Log(ERRORED, ["a"]), faults.hit
        reset(alias)
        if faults.hit is None:
            break
    assert any("UPDATE" in str(point) for point in faults.points)


def test_another_failure_than_a_lost_connection_is_not_tried_again(
    alias: str,
) -> None:
    def misbehave(point: FaultPoint, connection: object) -> None:
        raise ZeroDivisionError

    writer = Streams(using=alias).open(STREAM)
    with Faults(alias, at=1, fault=misbehave) as faults:
        with pytest.raises(ZeroDivisionError):
            writer.append("a")
        count = len(faults.points)
    assert count == 1
    assert writer.append("b") == 0
