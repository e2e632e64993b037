"""gc_streams: abandoned streams are settled, old ones deleted, others left alone."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from django_streams import StreamFencedError, Streams, StreamsError, StreamState
from django_streams.gc import collect
from django_streams.models import Stream

from .conftest import SHORT, Follow
from .stores import DatabaseUnderTest
from .test_streams_settle import status_of
from .waiting import WITHIN, holds, in_thread

HOUR = 3600.0
Collect = Callable[..., Any]


@pytest.fixture
def store(db_store: DatabaseUnderTest) -> DatabaseUnderTest:
    return db_store


@pytest.fixture
def gc(store: DatabaseUnderTest) -> Collect:
    """The function behind the command, with the command's defaults."""

    def run(
        stale: float = 300,
        completed: float = 86_400,
        batch_size: int = 500,
        dry_run: bool = False,
    ) -> Any:
        return collect(
            using=store.alias,
            stale=stale,
            completed=completed,
            batch_size=batch_size,
            dry_run=dry_run,
        )

    return run


def live(store: DatabaseUnderTest, stream_id: str, **options: Any) -> Any:
    writer = store.streams().open(stream_id, **options)
    writer.append("a")
    return writer


def ids(streams: Streams) -> set[str]:
    return {status.stream_id for status in streams.list()}


def test_it_goes_by_the_last_activity_and_not_by_the_start(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    streams = store.streams()
    running = live(store, "begun 25 h ago, still appending")
    store.elapse(23 * HOUR)
    running.append("b")
    live(store, "abandoned 2 h ago")
    store.elapse(2 * HOUR - 11 * 60)
    live(store, "finished 11 min ago").close()
    store.elapse(10 * 60)
    running.append("c")
    live(store, "finished 1 min ago").close()
    store.elapse(60)
    summary = gc(completed=600)
    assert ids(streams) == {
        "begun 25 h ago, still appending",
        "abandoned 2 h ago",
        "finished 1 min ago",
    }
    abandoned = status_of(streams, "abandoned 2 h ago")
    assert (abandoned.state, abandoned.error) == (StreamState.ERRORED, "interrupted")
    untouched = status_of(streams, "begun 25 h ago, still appending")
    assert (untouched.state, untouched.cursor) == (StreamState.STREAMING, 3)
    assert running.append("d") == 3
    assert (summary.found, summary.settled, summary.deleted) == (2, 1, 1)
    assert summary.bytes > 0
    again = gc(completed=600)
    assert (again.found, again.settled, again.deleted, again.bytes) == (0, 0, 0, 0)


def test_readers_of_an_abandoned_stream_are_told(
    store: DatabaseUnderTest, gc: Collect, follow: Follow
) -> None:
    writer = live(store, "s")
    reader = follow("s")
    reader.wait_for(1)
    store.elapse(299)
    assert gc().settled == 0
    assert holds(lambda: not reader.end.done())
    store.elapse(2)
    assert gc().settled == 1
    assert reader.finish() == ["a"]
    assert status_of(store.streams(), "s").error == "interrupted"
    with pytest.raises(StreamsError):
        writer.append("b")
    assert writer.close() is False


def test_a_live_lease_protects_a_silent_producer(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    live(store, "thinking", lease=1000)
    live(store, "waiting", lease=1000, on_lapse="wait")
    store.elapse(900)
    assert gc().found == 0
    assert status_of(store.streams(), "thinking").lease == "live"


def test_a_lapsed_lease_is_not_given_the_time_of_a_stale_stream(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    live(store, "settles", lease=10)
    live(store, "waits", lease=10, on_lapse="wait")
    store.elapse(15)
    # Lapsed, but not for more than one lease: it may only have been slow.
    assert gc().found == 0
    store.elapse(10)
    assert gc().settled == 1
    streams = store.streams()
    assert status_of(streams, "settles").error == "interrupted"
    assert status_of(streams, "waits").state is StreamState.STREAMING


def test_a_stream_taken_over_is_left_to_its_new_producer(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    old = live(store, "s", lease=10)
    store.elapse(25)
    new = store.streams().open("s", lease=10, takeover=True)
    assert gc().found == 0
    with pytest.raises(StreamFencedError):
        old.append("x")
    assert new.append("b") == 1


def test_a_cancelled_producer_has_a_grace_time(
    store: DatabaseUnderTest, gc: Collect, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"CANCEL_GRACE": 60.0}
    streams = store.streams()
    live(store, "leased", lease=10_000)
    live(store, "plain")
    live(store, "not cancelled", lease=10_000)
    for name in ("leased", "plain"):
        streams.cancel(name)
    store.elapse(50)
    assert gc().found == 0
    # Asking again is no news and gains no time.
    streams.cancel("plain")
    store.elapse(15)
    assert gc().settled == 2
    for name in ("leased", "plain"):
        status = status_of(streams, name)
        assert (status.state, status.error) == (StreamState.ERRORED, "cancelled")
    assert status_of(streams, "not cancelled").state is StreamState.STREAMING


def test_settled_streams_go_with_their_blocks(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    streams = store.streams()
    live(store, "completed").close()
    live(store, "errored").error("x")
    store.elapse(86_390)
    live(store, "young").close()
    store.elapse(20)
    kept = len(store.blocks("young"))
    summary = gc()
    assert (summary.settled, summary.deleted) == (0, 2)
    assert ids(streams) == {"young"}
    assert store.all_blocks() == kept
    # The id is free again.
    assert streams.open("completed").append("new") == 0


def test_what_was_just_settled_is_kept_for_its_readers(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    live(store, "s")
    store.elapse(1_000_000)
    assert gc().deleted == 0
    assert [c.chunk for c in store.streams().read("s")] == ["a"]
    store.elapse(86_500)
    assert gc().deleted == 1


def test_a_dry_run_counts_and_changes_nothing(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    streams = store.streams()
    live(store, "old").close()
    store.elapse(90_000)
    live(store, "abandoned")
    store.elapse(400)
    before = streams.list()
    planned = gc(dry_run=True)
    assert streams.list() == before
    assert planned.found == 2
    done = gc()
    assert (done.found, done.settled, done.deleted) == (2, 1, 1)
    assert planned.bytes == done.bytes


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_batches_get_everything_in_the_end(
    store: DatabaseUnderTest, gc: Collect, batch_size: int
) -> None:
    for number in range(7):
        live(store, f"old {number}").close()
    store.elapse(90_000)
    for number in range(7):
        live(store, f"abandoned {number}")
    store.elapse(400)
    summary = gc(batch_size=batch_size)
    assert (summary.settled, summary.deleted) == (7, 7)
    assert ids(store.streams()) == {f"abandoned {n}" for n in range(7)}


def test_one_at_work_and_another_do_not_disturb_each_other(
    store: DatabaseUnderTest, gc: Collect
) -> None:
    for number in range(30):
        live(store, f"old {number}").close()
    store.elapse(90_000)
    for number in range(10):
        live(store, f"abandoned {number}")
    store.elapse(400)
    busy = live(store, "busy")

    def produce() -> None:
        for _ in range(50):
            busy.append("x")

    running = [in_thread(gc, batch_size=2) for _ in range(2)]
    producing = in_thread(produce)
    summaries = [future.result(2 * WITHIN) for future in running]
    producing.result(2 * WITHIN)
    assert sum(s.deleted for s in summaries) == 30
    assert sum(s.settled for s in summaries) == 10
    assert status_of(store.streams(), "busy").cursor == 51
    # One may have left to the other what that one held at the time.
    assert gc().found == 0


def command(store: DatabaseUnderTest, *arguments: str) -> str:
    out = io.StringIO()
    call_command("gc_streams", *arguments, using=store.alias, stdout=out)
    return out.getvalue()


def test_the_command_does_it_and_says_what_it_did(store: DatabaseUnderTest) -> None:
    live(store, "old").close()
    store.elapse(90_000)
    live(store, "abandoned")
    store.elapse(400)
    said = command(store, "--dry-run")
    assert ids(store.streams()) == {"old", "abandoned"}
    assert "found" in said.lower()
    said = command(store).lower()
    for word in ("found", "settled", "deleted", "byte"):
        assert word in said
    assert re.findall(r"\d+", said)[0] == "2"
    assert ids(store.streams()) == {"abandoned"}


def test_the_command_takes_its_windows_from_its_options(
    store: DatabaseUnderTest,
) -> None:
    live(store, "settled").close()
    live(store, "idle")
    store.elapse(50)
    command(store, "--stale", "100", "--completed", "100", "--batch-size", "1")
    assert ids(store.streams()) == {"settled", "idle"}
    command(store, "--stale", "40", "--completed", "40", "--batch-size", "1")
    assert ids(store.streams()) == {"idle"}
    assert status_of(store.streams(), "idle").error == "interrupted"


@pytest.mark.parametrize("option", ["--stale", "--completed", "--batch-size"])
def test_the_command_refuses_negative_numbers(
    store: DatabaseUnderTest, option: str
) -> None:
    live(store, "s")
    with pytest.raises(CommandError):
        command(store, f"{option}=-1")
    assert Stream.objects.using(store.alias).get().state == "streaming"
