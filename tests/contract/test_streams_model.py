"""Random histories against a model: whatever happens, the log stays a log.

The machine opens, appends, pushes, flushes, settles, takes over, deletes,
crashes (a handle is dropped with what it had buffered) and restarts (all
handles and the facade are dropped). After every step each stream's log is a
gap-free sequence that only ever grew: acknowledged chunks stand at the position
that was returned, a writer's chunks in its order, none twice, none invented.
Readers attached at any time see exactly that log, and its end if and only if it
settled.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from django_streams import (
    StreamClosedError,
    StreamFencedError,
    StreamLiveError,
    StreamNotFoundError,
    Streams,
    StreamsError,
    StreamWriter,
)

from .doors import Door
from .stores import StoreUnderTest
from .waiting import WITHIN

Steps = Generator[Any, None, None]
LIVE, DELETED = "streaming", "deleted"
DEAD = (StreamClosedError, StreamFencedError)

_examples = itertools.count()


@dataclass
class Log:
    """What the model knows of one stream, from its opening to its deletion."""

    stream_id: str
    state: str = LIVE
    epoch: int = 1
    acknowledged: dict[int, int] = field(default_factory=dict)
    seen: list[int] = field(default_factory=list)
    handles: list[Handle] = field(default_factory=list)


@dataclass
class Handle:
    """A writer and what was given to it, in order."""

    log: Log
    writer: StreamWriter
    epoch: int
    given: list[int] = field(default_factory=list)
    certain: int = 0
    """How many of *given* must be stored; the rest may be."""

    @property
    def usable(self) -> bool:
        return self.log.state == LIVE and self.epoch == self.log.epoch


@dataclass
class Reader:
    log: Log
    steps: Steps
    seen: list[int]
    over: bool = False


class LogMachine(RuleBasedStateMachine):
    """See the module; ``store`` and ``door`` are set by the test."""

    store: StoreUnderTest
    door: Door

    writers = Bundle("writers")
    readers = Bundle("readers")
    names = st.sampled_from(["one", "two"])

    @initialize()
    def begin(self) -> None:
        self.prefix = next(_examples)
        self.values = itertools.count()
        self.logs: dict[str, Log] = {}
        self.reading: list[Reader] = []
        self.streams = self.door.enter(self.store.streams())

    def identify(self, name: str) -> str:
        return f"{self.prefix} {name}"

    def steps(self, stream_id: str, start: int) -> Steps:
        # The sync reader would wait for ever for a chunk that does not come;
        # the async door has its own deadline.
        if isinstance(self.streams, Streams):
            return self.streams.read(stream_id, start=start, timeout=WITHIN)
        return self.streams.read(stream_id, start=start)

    @rule(target=writers, name=names, takeover=st.booleans())
    def open(self, name: str, takeover: bool) -> Any:
        stream_id = self.identify(name)
        log = self.logs.get(stream_id)
        if log is not None and log.state != LIVE:
            with pytest.raises(StreamClosedError):
                self.streams.open(stream_id, takeover=takeover)
            return multiple()
        writer = self.streams.open(stream_id, takeover=takeover)
        if log is None:
            log = self.logs[stream_id] = Log(stream_id)
        elif takeover:
            log.epoch += 1
        assert writer.epoch == log.epoch
        assert writer.cursor >= len(log.seen)
        handle = Handle(log, writer, log.epoch)
        log.handles.append(handle)
        return handle

    @rule(handle=writers)
    def append(self, handle: Handle) -> None:
        self.write(handle, 1, lambda values: handle.writer.append(values[0]))

    @rule(handle=writers, count=st.integers(1, 9))
    def extend(self, handle: Handle, count: int) -> None:
        self.write(handle, count, handle.writer.extend)

    def write(
        self, handle: Handle, count: int, call: Callable[[list[int]], int]
    ) -> None:
        values = [next(self.values) for _ in range(count)]
        if not handle.usable:
            with pytest.raises(DEAD):
                call(values)
            return
        first = call(values)
        handle.given += values
        handle.certain = len(handle.given)
        for seq, value in enumerate(values, start=first):
            assert handle.log.acknowledged.setdefault(seq, value) == value

    @rule(handle=writers, count=st.integers(1, 25))
    def push(self, handle: Handle, count: int) -> None:
        try:
            for _ in range(count):
                value = next(self.values)
                handle.writer.push(value)
                handle.given.append(value)
        except DEAD:
            assert not handle.usable

    @rule(handle=writers)
    def flush(self, handle: Handle) -> None:
        try:
            handle.writer.flush()
        except DEAD:
            assert not handle.usable
        else:
            if handle.usable:
                handle.certain = len(handle.given)

    @rule(
        handle=writers,
        word=st.sampled_from(["close", "error"]),
        discard=st.booleans(),
        fails=st.booleans(),
    )
    def settle(self, handle: Handle, word: str, discard: bool, fails: bool) -> None:
        ran: list[str] = []

        def commit() -> None:
            ran.append("x")
            if fails:
                raise LookupError

        log = handle.log
        call = getattr(handle.writer, word)
        if not handle.usable:
            with contextlib.suppress(*DEAD):
                assert call(commit=commit, discard=discard) is False
            assert ran == []
            return
        if fails:
            with pytest.raises(LookupError):
                call(commit=commit, discard=discard)
            return
        assert call(commit=commit, discard=discard) is True
        assert ran == ["x"]
        handle.certain = len(handle.given)
        if discard:
            self.forget(log)
        else:
            log.state = {"close": "completed", "error": "errored"}[word]

    def forget(self, log: Log) -> None:
        log.state = DELETED
        del self.logs[log.stream_id]

    @rule(name=names)
    def delete(self, name: str) -> None:
        stream_id = self.identify(name)
        log = self.logs.get(stream_id)
        if log is None:
            assert self.streams.delete(stream_id) is False
        elif log.state == LIVE:
            with pytest.raises(StreamLiveError):
                self.streams.delete(stream_id)
        else:
            self.look(log)
            assert self.streams.delete(stream_id) is True
            self.forget(log)

    @rule(handle=consumes(writers))
    def crash(self, handle: Handle) -> None:
        """The handle is gone; what it had buffered was stored, or was not."""
        del handle.writer

    @rule()
    def restart(self) -> None:
        self.streams = self.door.enter(self.store.streams())

    @rule(target=readers, name=names)
    def attach(self, name: str) -> Any:
        log = self.logs.get(self.identify(name))
        if log is None or not log.seen:
            return multiple()
        steps = self.steps(log.stream_id, 0)
        reader = Reader(log, steps, [next(steps).chunk])
        self.reading.append(reader)
        return reader

    @rule(reader=readers)
    def read_on(self, reader: Reader) -> None:
        """Take all that is there; the end comes if and only if it settled."""
        log = reader.log
        if reader.over:
            return
        if log.state != DELETED:
            self.look(log)
            missing = len(log.seen) - len(reader.seen)
            reader.seen += [next(reader.steps).chunk for _ in range(missing)]
            assert reader.seen == log.seen
            if log.state != LIVE:
                reader.over = True
                with pytest.raises(StopIteration):
                    next(reader.steps)
            return
        reader.over = True
        try:
            for chunk in reader.steps:
                reader.seen.append(chunk.chunk)
        except StreamClosedError as error:
            assert error.code == DELETED
        else:
            # Only who has the whole log may take it for complete.
            assert len(reader.seen) >= len(log.seen)
        common = min(len(reader.seen), len(log.seen))
        assert reader.seen[:common] == log.seen[:common]

    @rule(name=names, start=st.integers(-1, 60))
    def read(self, name: str, start: int) -> None:
        stream_id = self.identify(name)
        log = self.logs.get(stream_id)
        if log is None:
            with pytest.raises(StreamNotFoundError):
                next(self.steps(stream_id, start))
            return
        self.look(log)
        expected = list(enumerate(log.seen))[max(start, 0) :]
        steps = self.steps(stream_id, start)
        if log.state == LIVE:
            got = [next(steps) for _ in expected]
            steps.close()
        else:
            got = list(steps)
        assert [(c.seq, c.chunk) for c in got] == expected

    @rule(name=names)
    def wait_at_the_end(self, name: str) -> None:
        """Who has everything of a live stream waits; of a settled one, is done."""
        log = self.logs.get(self.identify(name))
        if log is None:
            return
        self.look(log)
        end = len(log.seen)
        try:
            chunk = self.door.next_within(self.streams, log.stream_id, end)
        except TimeoutError:
            assert log.state == LIVE
        else:
            # What was buffered may have been stored in this very moment.
            assert (chunk is None) == (log.state != LIVE)
            assert chunk is None or chunk.seq == end

    def look(self, log: Log) -> None:
        """Read the stored log and compare it with everything known of it."""
        status = self.streams.status(log.stream_id)
        assert status is not None
        assert status.state == log.state
        steps = self.steps(log.stream_id, 0)
        stored = [next(steps) for _ in range(status.cursor)]
        steps.close()
        assert [c.seq for c in stored] == list(range(status.cursor))
        values = [c.chunk for c in stored]
        assert values[: len(log.seen)] == log.seen, "the log changed"
        log.seen = values
        assert len(set(values)) == len(values), "a chunk is there twice"
        for seq, value in log.acknowledged.items():
            assert values[seq] == value
        where = {value: seq for seq, value in enumerate(values)}
        for handle in log.handles:
            places = [where.get(value) for value in handle.given]
            assert None not in places[: handle.certain], "an acknowledged chunk is lost"
            found = [place for place in places if place is not None]
            assert found == sorted(found), "chunks of a writer changed places"
        given = {value for handle in log.handles for value in handle.given}
        assert set(values) <= given

    @invariant()
    def every_log_is_a_log(self) -> None:
        for log in list(getattr(self, "logs", {}).values()):
            self.look(log)

    def teardown(self) -> None:
        for reader in getattr(self, "reading", []):
            reader.steps.close()
        for log in getattr(self, "logs", {}).values():
            if log.state == LIVE:
                try:
                    self.streams.open(log.stream_id, takeover=True).close(discard=True)
                except StreamsError as error:  # pragma: no cover
                    raise AssertionError("the last close failed") from error


def test_a_random_history_leaves_a_log(store: StoreUnderTest, door: Door) -> None:
    class Machine(LogMachine):
        pass

    Machine.store, Machine.door = store, door
    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=12,
            stateful_step_count=30,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
