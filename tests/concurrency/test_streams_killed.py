"""kill -9 between any two statements, and what the next process finds."""

from __future__ import annotations

import itertools
import os
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import override_settings

from django_streams import StreamClosedError, Streams, StreamState
from django_streams.testing.faults import FaultPoint, Faults, kill
from tests import process
from tests.databases import empty
from tests.process import Child

from .operations import OPERATIONS, SETTINGS, look, sweep_all

STREAM = "one"
SOON = {"PGOPTIONS": "-c synchronous_commit=off"}
"""Processes are killed; nobody pulls the plug."""

POINTS = {
    "open": {"after INSERT django_streams_stream", "before COMMIT", "after COMMIT"},
    "append": {"before WITH django_streams_stream", "after WITH django_streams_stream"},
    "extend": {"after UPDATE django_streams_stream", "before COMMIT", "after COMMIT"},
    "close": {"after UPDATE django_streams_stream", "after COMMIT"}
    | {"after DELETE django_streams_chunkblock"},
    "close with discard": {"after INSERT auth_user", "before COMMIT", "after COMMIT"}
    | {"after DELETE django_streams_stream"},
    "sweep": {"after DELETE django_streams_chunkblock", "after COMMIT"},
}
"""Some that must be among those that are found."""


def forked(work: Callable[..., None], /, **arguments: Any) -> int:
    """Run *work* in a fork; how it ended: 0, 1 or the negative signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        work(**arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def die_when_told() -> None:
    """For each job, a process of its own that is killed at the point it names."""

    def say_and_die(point: FaultPoint, connection: BaseDatabaseWrapper) -> None:
        process.say(str(point))
        kill(point, connection)

    while True:
        job = process.hear()

        def work(alias: str, name: str, at: int) -> None:
            steps = OPERATIONS[name].run(alias, STREAM)
            next(steps)
            with Faults(alias, at=at, fault=say_and_die) as faults:
                next(steps, None)
            assert faults.hit is None

        with override_settings(DJANGO_STREAMS=SETTINGS):
            process.say(forked(work, **job))


@pytest.fixture(scope="module")
def mother() -> Iterator[Child]:
    """Never has a connection or a second thread, so that she can fork."""
    with Child(die_when_told, env=SOON) as child:
        yield child


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("db", ["default", "postgresql", "mariadb"])
def test_whatever_a_kill_interrupts_is_done_or_undone_and_goes_on(
    real_db: Callable[[str], str], mother: Child, db: str, name: str
) -> None:
    alias = real_db(db)
    operation = OPERATIONS[name]
    reached = set()
    for at in itertools.count(1):
        mother.say({"alias": alias, "name": name, "at": at})
        heard = mother.hear()
        if heard == 0:
            break
        reached.add(heard)
        assert mother.hear() == -9
        found = look(alias, STREAM)
        assert operation.may_be(found), f"{found} after a kill {heard} ({at})"
        _goes_on(alias)
        empty(alias)
    assert look(alias, STREAM) == operation.done
    if alias == "postgresql" or name != "append":
        assert reached >= POINTS.get(name, set())


def _goes_on(alias: str) -> None:
    """This process finishes what the dead one began."""
    streams = Streams(using=alias)
    before = look(alias, STREAM).log
    if before is not None and before.state.settled:
        with pytest.raises(StreamClosedError):
            streams.open(STREAM)
        assert [c.chunk for c in streams.read(STREAM)] == before.chunks
    else:
        chunks = [] if before is None else before.chunks
        writer = streams.open(STREAM)
        assert writer.cursor == len(chunks)
        assert writer.append("more") == len(chunks)
        assert writer.close() is True
        assert [c.chunk for c in streams.read(STREAM)] == [*chunks, "more"]
    other = look(alias, STREAM).other
    if other is not None:
        sweep_all(alias)
    assert StreamState.STREAMING not in [s.state for s in streams.list()]
