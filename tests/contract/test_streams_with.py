"""The writer as a context manager: it settles whatever way the block ends."""

from __future__ import annotations

import asyncio
import logging

import pytest
from pytest_django import Settings

from django_streams import (
    StreamCancelledError,
    StreamFencedError,
    Streams,
    StreamState,
)
from django_streams.exceptions import PublicError

from .conftest import SHORT
from .stores import StoreUnderTest
from .test_streams_settle import status_of


def test_a_block_that_ends_completes_the_stream(streams: Streams) -> None:
    with streams.open("s") as writer:
        writer.append("a")
    status = status_of(streams, "s")
    assert (status.state, status.cursor) == (StreamState.COMPLETED, 1)


def test_an_exception_settles_as_errored_and_goes_on(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR, "django_streams"),
        pytest.raises(LookupError, match="hunter2"),
        streams.open("s") as writer,
    ):
        writer.append("a")
        raise LookupError("the password is hunter2")
    status = status_of(streams, "s")
    assert (status.state, status.cursor) == (StreamState.ERRORED, 1)
    # The text of an unexpected error is for the log, not for clients.
    assert status.error is not None
    assert status.error.startswith("Internal error")
    assert "hunter2" not in status.error
    reference = status.error.split()[-1].strip("().")
    assert reference in caplog.text
    assert "hunter2" in caplog.text


def test_the_text_is_shown_where_the_project_says_so(
    streams: Streams, settings: Settings
) -> None:
    settings.DJANGO_STREAMS = SHORT | {"EXPOSE_ERRORS": True}
    with pytest.raises(LookupError), streams.open("s"):
        raise LookupError("the disk is full")
    assert "the disk is full" in (status_of(streams, "s").error or "")


def test_a_public_error_keeps_its_text(streams: Streams) -> None:
    with pytest.raises(PublicError), streams.open("s"):
        raise PublicError("The model is overloaded, try again.")
    assert status_of(streams, "s").error == "The model is overloaded, try again."


def test_a_block_may_settle_by_itself(streams: Streams) -> None:
    with streams.open("s") as writer:
        writer.error("gave up")
    assert status_of(streams, "s").error == "gave up"
    with streams.open("t") as writer:
        writer.close(discard=True)
    assert streams.status("t") is None
    with pytest.raises(LookupError), streams.open("u") as writer:
        writer.close()
        raise LookupError
    assert status_of(streams, "u").state is StreamState.COMPLETED


def test_a_superseded_block_leaves_the_stream_to_its_successor(
    streams: Streams,
) -> None:
    with pytest.raises(StreamFencedError), streams.open("s") as writer:
        successor = streams.open("s", takeover=True)
        writer.append("a")
    assert status_of(streams, "s").state is StreamState.STREAMING
    assert successor.close() is True


def test_a_cancelled_producer_settles_as_cancelled(streams: Streams) -> None:
    with pytest.raises(StreamCancelledError), streams.open("s") as writer:
        writer.append("a")
        streams.cancel("s")
        while True:
            writer.append("b")
    status = status_of(streams, "s")
    assert (status.state, status.error) == (StreamState.ERRORED, "cancelled")
    assert status.cursor == 1


@pytest.mark.parametrize(
    ("lease", "state"), [(None, StreamState.ERRORED), (30, StreamState.STREAMING)]
)
async def test_a_cancelled_task_settles_unless_somebody_will_resume(
    store: StoreUnderTest, lease: float | None, state: StreamState
) -> None:
    streams = store.streams()
    inside = asyncio.Event()

    async def produce() -> None:
        async with await streams.aopen("s", lease=lease) as writer:
            await writer.aappend("a")
            await writer.apush("b")
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(produce())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    status = await streams.astatus("s")
    assert status is not None
    assert status.state is state
    assert (status.closed_at is None) == (state is StreamState.STREAMING)
