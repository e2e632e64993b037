"""cancel(): the producer is asked to stop, and stops."""

from __future__ import annotations

import contextlib

import pytest

from django_streams import StreamCancelledError, Streams, StreamState

from .conftest import Follow
from .stores import StoreUnderTest
from .test_streams_append import stored
from .test_streams_settle import status_of
from .waiting import aeventually, outside


def test_cancel_tells_whether_the_stream_was_live(streams: Streams) -> None:
    writer = streams.open("s")
    assert streams.cancel("s") is True
    assert streams.cancel("s") is True
    assert streams.cancel("unknown") is False
    writer.close()
    assert streams.cancel("s") is False


def test_every_append_of_a_cancelled_producer_is_refused(streams: Streams) -> None:
    writer, other = streams.open("s"), streams.open("s")
    writer.append("a")
    assert writer.cancelled is False
    streams.cancel("s")
    for handle in (writer, other, streams.open("s")):
        with pytest.raises(StreamCancelledError) as caught:
            handle.append("b")
        assert (caught.value.code, caught.value.stream_id) == ("cancelled", "s")
        assert handle.cancelled is True
        with pytest.raises(StreamCancelledError):
            handle.extend(["b", "c"])
    assert stored(streams, "s") == ["a"]
    assert status_of(streams, "s").state is StreamState.STREAMING


def test_a_pushing_producer_is_told_at_the_flush(streams: Streams) -> None:
    writer = streams.open("s")
    streams.cancel("s")
    with pytest.raises(StreamCancelledError):
        for number in range(100):
            writer.push(number)
        writer.flush()
    assert writer.cancelled is True
    assert status_of(streams, "s").cursor == 0


@pytest.mark.parametrize("settle", ["close", "error"])
def test_a_cancelled_producer_still_settles(streams: Streams, settle: str) -> None:
    ran: list[str] = []
    writer = streams.open("s")
    writer.append("a")
    streams.cancel("s")
    with pytest.raises(StreamCancelledError):
        writer.append("b")
    assert getattr(writer, settle)(commit=lambda: ran.append("x")) is True
    assert ran == ["x"]
    assert status_of(streams, "s").closed_at is not None
    assert [c.chunk for c in streams.read("s")] == ["a"]


@pytest.mark.parametrize("settle", ["close", "error"])
def test_what_was_pushed_too_late_does_not_keep_a_producer_from_settling(
    streams: Streams, settle: str
) -> None:
    writer = streams.open("s")
    writer.append("a")
    streams.cancel("s")
    with contextlib.suppress(StreamCancelledError):
        for number in range(3):
            writer.push(number)
    assert getattr(writer, settle)() is True
    assert [c.chunk for c in streams.read("s")] == ["a"]


def test_readers_follow_a_cancelled_stream_until_it_settles(
    streams: Streams, follow: Follow
) -> None:
    writer = streams.open("s")
    writer.append("a")
    reader = follow("s")
    reader.wait_for(1)
    streams.cancel("s")
    assert not reader.end.done()
    writer.error("cancelled")
    assert reader.finish() == ["a"]


def test_renewing_tells_a_silent_producer(streams: Streams) -> None:
    writer = streams.open("s", lease=30)
    streams.cancel("s")
    writer.renew()
    assert writer.cancelled is True


async def test_a_renewing_producer_learns_of_it_without_an_append(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s", lease=0.3)
    await outside(streams.cancel, "s")
    await aeventually(lambda: writer.cancelled, within=5)
    await writer.aerror("cancelled")


def test_a_cancelled_id_is_free_of_it_after_deletion(streams: Streams) -> None:
    writer = streams.open("s")
    streams.cancel("s")
    writer.close(discard=True)
    writer = streams.open("s")
    assert writer.cancelled is False
    assert writer.append("a") == 0
