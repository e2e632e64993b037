"""``sse_response``: what ends it, heartbeats, and what it leaves behind."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from django_streams import (
    Streams,
    StreamsError,
    conf,
    sse_response,
)
from django_streams.reader import Follower
from django_streams.spans import Slice
from django_streams.sse.response import SSEResponse, respond
from django_streams.sse.terms import Guard
from django_streams.store.memory import MemoryStore
from django_streams.testing.sse import SSEEvent, SSEParser
from tests.integration.sse_reading import body, events, settled


@pytest.fixture
def streams() -> Streams:
    return Streams(using=MemoryStore())


async def test_a_reader_is_told_when_the_stream_is_deleted_under_it(
    streams: Streams,
) -> None:
    writer = await streams.aopen("a")
    await writer.aextend([1, 2])
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        await anext(parts)
        await anext(parts)
        await writer.aclose(discard=True)
        rest = b"".join([part async for part in parts])
    (event,) = SSEParser().feed(rest)
    assert isinstance(event, SSEEvent)
    assert (event.event, event.json()) == ("error", {"reason": "deleted"})
    assert event.own_id == "2"


async def test_a_stream_deleted_between_the_answer_and_the_first_byte_is_told(
    streams: Streams,
) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a")
    await streams.adelete("a")
    assert await events(response) == [("error", {"reason": "deleted"}, "0")]


async def test_the_end_of_another_stream_with_the_same_id_is_not_told_as_ours(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a")
    real = streams.astatus

    async def replaced_meanwhile(stream_id: str) -> Any:
        await streams.adelete(stream_id)
        await settled(streams, 1, 2, 3)
        return await real(stream_id)

    monkeypatch.setattr(streams, "astatus", replaced_meanwhile)
    assert (await events(response))[-1] == ("error", {"reason": "deleted"}, "1")


async def test_a_stop_event_ends_the_tail_without_an_end_event(
    streams: Streams,
) -> None:
    await streams.aopen("a")
    stop = asyncio.Event()
    response = await sse_response(streams, "a", stop=stop)
    assert isinstance(response, SSEResponse)
    parts = response.__aiter__()
    await anext(parts)
    waiting = asyncio.ensure_future(anext(parts, b"the end"))
    stop.set()
    async with asyncio.timeout(5):
        assert await waiting == b"the end"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stop_event_that_is_already_set_sends_nothing(streams: Streams) -> None:
    await settled(streams, 1)
    stop = asyncio.Event()
    stop.set()
    assert await body(await sse_response(streams, "a", stop=stop)) == b""


async def test_a_maximum_age_ends_the_tail_in_order_and_without_an_end_event(
    streams: Streams,
) -> None:
    await streams.aopen("a")
    async with asyncio.timeout(5):
        data = await body(await sse_response(streams, "a", max_age=0.05))
    assert data.endswith(b"event: up-to-date\ndata: {}\n\n")


async def test_cancelling_the_task_ends_the_tail_and_leaves_no_task(
    streams: Streams,
) -> None:
    await streams.aopen("a")
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    seen = asyncio.Event()

    async def serve() -> None:
        async for _ in response:
            seen.set()

    task = asyncio.create_task(serve())
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_the_iterator_leaves_no_task_and_no_timer(
    streams: Streams,
) -> None:
    await streams.aopen("a")
    response = await sse_response(streams, "a", max_age=60)
    assert isinstance(response, SSEResponse)
    parts = response.__aiter__()
    await anext(parts)
    await parts.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    loop: Any = asyncio.get_running_loop()
    assert [timer for timer in loop._scheduled if not timer.cancelled()] == []


async def test_a_client_that_takes_no_byte_is_given_up(
    streams: Streams, settings: Any
) -> None:
    settings.DJANGO_STREAMS = {"SSE_SEND_TIMEOUT": 0.05}
    await settled(streams, 1)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)

    async def send_and_never_return() -> None:
        async with aclosing(response.__aiter__()) as parts:
            async for _ in parts:
                await asyncio.Event().wait()

    task = asyncio.create_task(send_and_never_return())
    async with asyncio.timeout(5):
        await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_client_that_does_not_read_is_not_read_for(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await streams.aopen("a")
    await writer.aextend(["x" * 1000] * 3000)
    pulled = 0
    taken = Follower.anext

    async def counting(follower: Follower) -> list[Slice] | None:
        nonlocal pulled
        parts = await taken(follower)
        pulled += 1
        return parts

    monkeypatch.setattr(Follower, "anext", counting)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        await anext(parts)
        for _ in range(100):
            await asyncio.sleep(0)
        # One page, which is written in several parts.
        assert pulled == 1
        written = 0
        while pulled == 1:
            written += len(await anext(parts))
        assert pulled == 2
        assert written <= 2 * conf.get().PAGE_BYTES


async def test_a_failing_database_ends_the_response_without_an_end_event(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a")

    async def broken(stream_id: str) -> None:
        raise StreamsError("the database is away")

    monkeypatch.setattr(streams, "astatus", broken)
    assert [name for name, _, _ in await events(response)] == ["message", "up-to-date"]
    assert "will reconnect" in caplog.text


async def test_a_server_that_buffers_is_fed_at_the_configured_pace(
    streams: Streams, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_STREAMS = {"SSE_PACE": 100_000}
    monkeypatch.setattr("django_streams.sse.response.server_buffers", lambda: True)
    waits: list[float] = []

    async def note(delay: float) -> None:
        waits.append(delay)

    await settled(streams, *["x" * 1000] * 100)
    response = await sse_response(streams, "a", batch_size=10)
    assert isinstance(response, SSEResponse)
    monkeypatch.setattr("django_streams.sse.follow.asyncio.sleep", note)
    size = len(await body(response))
    # Nobody slept, so the last wait is for all that was sent before it.
    assert waits == sorted(waits)
    assert waits[-1] == pytest.approx(size / 100_000, abs=0.4)


async def test_a_server_that_pushes_back_is_not_paced(
    streams: Streams, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DJANGO_STREAMS = {"SSE_PACE": 1}
    await settled(streams, *["x" * 1000] * 100)
    response = await sse_response(streams, "a")

    async def never(delay: float) -> None:
        raise AssertionError("paced")

    monkeypatch.setattr("django_streams.sse.follow.asyncio.sleep", never)
    assert (await body(response)).count(b'xxx"') == 100


# Heartbeats and access


async def test_silence_is_broken_by_comments_that_move_no_id_and_ask_nothing(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await streams.aopen("a")
    response = await sse_response(streams, "a", heartbeat=0.02)
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        await anext(parts)

        def no_query(*args: object) -> None:
            raise AssertionError("a heartbeat asked the store")

        monkeypatch.setattr(streams._store, "status", no_query)
        monkeypatch.setattr(streams._store, "head", no_query)
        assert [await anext(parts) for _ in range(3)] == [b":\n"] * 3


async def test_a_heartbeat_of_zero_is_none(streams: Streams) -> None:
    await streams.aopen("a")
    data = await body(await sse_response(streams, "a", heartbeat=0, max_age=0.1))
    assert b":\n" not in data.replace(b"retry:", b"")


async def test_a_reader_whose_access_ends_is_let_go(streams: Streams) -> None:
    await streams.aopen("a")
    answers = [True, True, False]

    async def allowed() -> bool:
        return answers.pop(0)

    response = await respond(streams, "a", guard=Guard(allowed, 0.01))
    async with asyncio.timeout(5):
        assert b"done" not in await body(response)
    assert answers == []


async def test_access_that_cannot_be_checked_lasts_two_intervals_and_no_longer(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    await streams.aopen("a")
    asked = 0

    async def broken() -> bool:
        nonlocal asked
        asked += 1
        raise OSError("away")

    response = await respond(streams, "a", guard=Guard(broken, 0.05))
    async with asyncio.timeout(5):
        await body(response)
    assert asked in (1, 2)
    assert "let go" in caplog.text
