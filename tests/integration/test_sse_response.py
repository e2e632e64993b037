"""``sse_response`` itself: what it answers, sends, and leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import AsyncRequestFactory, RequestFactory

from django_streams import (
    StreamChunk,
    Streams,
    StreamsError,
    StreamUsageError,
    sse_response,
)
from django_streams.sse.follow import Guard
from django_streams.sse.response import SSEResponse, respond
from django_streams.store.memory import MemoryStore
from django_streams.testing.sse import SSEEvent, SSEParser


@pytest.fixture
def streams() -> Streams:
    return Streams(using=MemoryStore())


def get(path: str = "/", **headers: str) -> HttpRequest:
    return AsyncRequestFactory().get(path, headers=headers)


async def body(response: HttpResponseBase) -> bytes:
    assert isinstance(response, SSEResponse)
    return b"".join([part async for part in response])


async def events(response: HttpResponseBase) -> list[tuple[str, Any, str | None]]:
    parser = SSEParser()
    return [
        (item.event, item.json(), item.own_id)
        for item in parser.feed(await body(response))
        if isinstance(item, SSEEvent)
    ]


async def settled(streams: Streams, *chunks: Any, error: str | None = None) -> None:
    async with await streams.aopen("a") as writer:
        if chunks:
            await writer.aextend(chunks)
        if error is not None:
            await writer.aerror(error)


UP_TO_DATE: tuple[str, Any, str | None] = ("up-to-date", {}, None)


async def test_a_settled_stream_is_replayed_and_ends(streams: Streams) -> None:
    await settled(streams, "x", None)
    assert await events(await sse_response(streams, "a")) == [
        ("message", "x", "0"),
        ("message", None, "1"),
        UP_TO_DATE,
        ("done", {}, "2"),
    ]


async def test_an_empty_settled_stream_is_up_to_date_and_done(streams: Streams) -> None:
    await settled(streams)
    assert await events(await sse_response(streams, "a")) == [
        UP_TO_DATE,
        ("done", {}, "0"),
    ]


@pytest.mark.parametrize("reason", ["model is gone", ""])
async def test_an_errored_stream_tells_its_reason(
    streams: Streams, reason: str
) -> None:
    await settled(streams, 1, error=reason)
    got = await events(await sse_response(streams, "a"))
    assert got[-1] == ("error", {"reason": reason}, "1")


async def test_an_error_without_a_reason_has_null(streams: Streams) -> None:
    writer = await streams.aopen("a")
    await writer.aerror()
    got = await events(await sse_response(streams, "a"))
    assert got[-1] == ("error", {"reason": None}, "0")


async def test_a_live_stream_is_replayed_then_followed_to_its_end(
    streams: Streams,
) -> None:
    writer = await streams.aopen("a")
    await writer.aappend(1)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        assert b"data: 1\n" in await anext(parts)
        assert await anext(parts) == b"event: up-to-date\ndata: {}\n\n"
        await writer.aappend(2)
        assert await anext(parts) == b"id: 1\ndata: 2\n\n"
        await writer.aclose()
        assert await anext(parts) == b"id: 2\nevent: done\ndata: {}\n\n"
        with pytest.raises(StopAsyncIteration):
            await anext(parts)


async def test_a_replay_is_one_write_for_each_batch(streams: Streams) -> None:
    await settled(streams, *range(25))
    response = await sse_response(streams, "a", batch_size=10)
    assert isinstance(response, SSEResponse)
    counts = [part.count(b"data: ") async for part in response]
    assert counts == [10, 10, 5, 1, 1]


async def test_what_came_in_one_append_while_following_is_one_write(
    streams: Streams,
) -> None:
    writer = await streams.aopen("a")
    response = await sse_response(streams, "a", batch_size=2)
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        await anext(parts)
        await writer.aextend(range(7))
        assert (await anext(parts)).count(b"data: ") == 7


async def test_only_the_first_event_tells_when_to_reconnect(streams: Streams) -> None:
    await settled(streams, 1, 2)
    parser = SSEParser()
    data = await body(await sse_response(streams, "a", batch_size=1))
    list(parser.feed(data))
    assert data.startswith(b"retry: ")
    assert len(parser.retries) == 1


async def test_the_time_to_reconnect_is_spread(streams: Streams) -> None:
    await settled(streams)
    parser = SSEParser()
    for _ in range(40):
        list(parser.feed(await body(await sse_response(streams, "a"))))
    assert len(set(parser.retries)) > 20
    assert all(1000 <= retry <= 5000 for retry in parser.retries)


async def test_the_headers_keep_every_proxy_from_storing_and_buffering(
    streams: Streams,
) -> None:
    await settled(streams)
    response = await sse_response(streams, "a")
    assert response.status_code == 200
    assert dict(response.headers) == {
        "Content-Type": "text/event-stream; charset=utf-8",
        "Cache-Control": "no-store, no-transform",
        "X-Accel-Buffering": "no",
    }


async def test_an_unknown_stream_is_404_before_anything_is_sent(
    streams: Streams,
) -> None:
    response = await sse_response(streams, 'b"\ud800')
    assert response.status_code == 404
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert not response.streaming


# Where it begins


async def test_the_last_event_id_header_wins_over_the_query(streams: Streams) -> None:
    await settled(streams, *range(5))
    request = get("/?from=1", Last_Event_ID="3")
    got = await events(await sse_response(streams, "a", request=request))
    assert got[0] == ("message", 4, "4")


async def test_the_start_argument_wins_over_both(streams: Streams) -> None:
    await settled(streams, *range(5))
    request = get("/?from=1", Last_Event_ID="3")
    got = await events(await sse_response(streams, "a", request=request, start=2))
    assert got[0] == ("message", 2, "2")


@pytest.mark.parametrize("header", ["", "abc", "-1", "1_0", "٣".encode().decode("l1")])
async def test_a_header_that_is_no_position_falls_through_to_the_query(
    streams: Streams, header: str
) -> None:
    await settled(streams, *range(5))
    request = get("/?from=1", Last_Event_ID=header)
    got = await events(await sse_response(streams, "a", request=request))
    assert got[0] == ("message", 1, "1")


@pytest.mark.parametrize("query", ["", "x", "-1", "1_0", "%D9%A3", "1" * 19])
async def test_a_query_that_is_no_position_is_400(streams: Streams, query: str) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a", request=get(f"/?from={query}"))
    assert response.status_code == 400
    assert response["Content-Type"].startswith("text/plain")


async def test_an_unknown_stream_is_404_even_with_a_bad_query(streams: Streams) -> None:
    response = await sse_response(streams, "b", request=get("/?from=x"))
    assert response.status_code == 404


async def test_who_saw_the_end_gets_204(streams: Streams) -> None:
    await settled(streams, 1, 2)
    request = get(Last_Event_ID="2")
    response = await sse_response(streams, "a", request=request)
    assert response.status_code == 204
    assert not response.has_header("Content-Type")


async def test_who_was_cut_just_before_the_end_gets_the_end(streams: Streams) -> None:
    await settled(streams, 1, 2)
    request = get(Last_Event_ID="1")
    got = await events(await sse_response(streams, "a", request=request))
    assert got == [UP_TO_DATE, ("done", {}, "2")]


async def test_a_query_at_the_cursor_gets_the_end_and_never_204(
    streams: Streams,
) -> None:
    await settled(streams, 1, 2)
    got = await events(await sse_response(streams, "a", request=get("/?from=2")))
    assert got == [UP_TO_DATE, ("done", {}, "2")]


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/?from=3", {}), ("/", {"Last_Event_ID": "7"})],
)
async def test_a_position_beyond_the_stream_is_a_reset_and_a_full_replay(
    streams: Streams, path: str, headers: dict[str, str]
) -> None:
    await settled(streams, 1, 2)
    got = await events(await sse_response(streams, "a", request=get(path, **headers)))
    assert got == [
        ("reset", {"cursor": 2}, None),
        ("message", 1, "0"),
        ("message", 2, "1"),
        UP_TO_DATE,
        ("done", {}, "2"),
    ]


async def test_the_id_of_an_end_that_a_live_stream_has_not_reached_is_a_reset(
    streams: Streams,
) -> None:
    writer = await streams.aopen("a")
    await writer.aappend(1)
    response = await sse_response(streams, "a", request=get(Last_Event_ID="1"))
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        assert b"event: reset" in await anext(parts)


# What ends it


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
    read_batches = streams.aread_batches

    async def counting(*args: Any, **kwargs: Any) -> AsyncIterator[list[StreamChunk]]:
        nonlocal pulled
        async with aclosing(read_batches(*args, **kwargs)) as batches:
            async for batch in batches:
                pulled += 1
                yield batch

    monkeypatch.setattr(streams, "aread_batches", counting)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    async with aclosing(response.__aiter__()) as parts:
        await anext(parts)
        for _ in range(100):
            await asyncio.sleep(0)
        assert pulled == 1
        await anext(parts)
        assert pulled == 2


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


# WSGI, HEAD, arguments


async def test_a_wsgi_request_is_refused_in_words(streams: Streams) -> None:
    with pytest.raises(StreamUsageError, match="ASGI"):
        await sse_response(streams, "a", request=RequestFactory().get("/"))


async def test_the_response_refuses_to_be_iterated_synchronously(
    streams: Streams,
) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    with pytest.raises(StreamUsageError, match="ASGI"):
        list(response)


async def test_head_answers_as_get_without_reading(streams: Streams) -> None:
    await streams.aopen("a")
    request = AsyncRequestFactory().head("/")
    response = await sse_response(streams, "a", request=request)
    assert response.status_code == 200
    assert response["Content-Type"] == "text/event-stream; charset=utf-8"
    assert await body(response) == b""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"start": "1"}, TypeError),
        ({"start": True}, TypeError),
        ({"batch_size": 0}, ValueError),
        ({"batch_size": 1.5}, TypeError),
        ({"heartbeat": -1}, ValueError),
        ({"max_age": 0}, ValueError),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    streams: Streams, arguments: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await sse_response(streams, "a", **arguments)


async def test_a_negative_start_is_the_beginning(streams: Streams) -> None:
    await settled(streams, 1)
    got = await events(await sse_response(streams, "a", start=-3))
    assert got[0] == ("message", 1, "0")


# Middleware


async def test_a_synchronous_wrapper_is_left_out_and_warned_of(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    await settled(streams, 1)
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    inner = response.streaming_content

    def shout() -> Iterator[bytes]:
        for part in inner:  # type: ignore[attr-defined]
            yield part.upper()

    response.streaming_content = shout()
    assert [name for name, _, _ in await events(response)] == [
        "message",
        "up-to-date",
        "done",
    ]
    assert "synchronous middleware" in caplog.text


async def test_an_asynchronous_wrapper_is_sent_and_what_it_wraps_is_closed(
    streams: Streams,
) -> None:
    await streams.aopen("a")
    response = await sse_response(streams, "a")
    assert isinstance(response, SSEResponse)
    inner = response.streaming_content

    async def upper() -> AsyncIterator[bytes]:
        async for part in inner:
            yield part.upper()

    response.streaming_content = upper()
    parts = response.__aiter__()
    assert b"EVENT: UP-TO-DATE" in await anext(parts)
    await parts.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}
