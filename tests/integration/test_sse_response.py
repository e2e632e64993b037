"""``sse_response``: what it answers and sends, and where it begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from django.test import AsyncRequestFactory, RequestFactory

from django_streams import (
    Streams,
    StreamUsageError,
    sse_response,
)
from django_streams.sse.response import SSEResponse
from django_streams.store.memory import MemoryStore
from django_streams.testing.sse import SSEParser
from tests.integration.sse_reading import UP_TO_DATE, body, events, get, settled


@pytest.fixture
def streams() -> Streams:
    return Streams(using=MemoryStore())


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
