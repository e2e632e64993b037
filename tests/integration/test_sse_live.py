"""Event streams over real sockets, on both servers, with every middleware."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from django_streams.testing.sse import SSEEvent, SSEStream, open_sse
from tests.liveserver import SERVERS, LiveServer

APP = "tests.integration.sse_asgi:application"
BROWSER = {"Accept-Encoding": "gzip, deflate, br, zstd"}


class Site:
    """The live site of :mod:`tests.integration.sse_site`."""

    def __init__(self, server: LiveServer) -> None:
        self.server = server
        self.url = server.url

    async def do(self, what: str, stream_id: str, **query: Any) -> None:
        query_string = urlencode(query, doseq=True)
        url = f"{self.url}/do/{what}/{quote(stream_id)}?{query_string}"
        async with open_sse(url) as answer:
            assert (answer.status, await answer.text()) == (200, "ok")

    async def stats(self) -> dict[str, Any]:
        async with open_sse(f"{self.url}/stats") as answer:
            found: dict[str, Any] = json.loads(await answer.text())
            return found

    async def stats_when(
        self, reached: Callable[[dict[str, Any]], bool], seconds: float = 10.0
    ) -> dict[str, Any]:
        """The first statistics that satisfy *reached*, or the last ones."""
        seen: dict[str, Any] = {}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not reached(seen := await self.stats()):
                    await asyncio.sleep(0.02)
        return seen

    def watch(self, stream_id: str, **options: Any) -> Any:
        options.setdefault("headers", BROWSER)
        return open_sse(f"{self.url}/watched/{quote(stream_id)}", **options)


@pytest.fixture(params=SERVERS)
def site(request: pytest.FixtureRequest, sqlite_db: str) -> Iterator[Site]:
    with LiveServer(APP, server=request.param) as server:
        yield Site(server)


async def until(stream: SSEStream, name: str) -> SSEEvent:
    while (event := await stream.next()).event != name:
        pass
    return event


async def test_each_chunk_arrives_by_itself_through_all_middleware(site: Site) -> None:
    await site.do("open", "a")
    async with site.watch("a") as stream:
        assert stream.headers["x-old"] == "yes"
        assert "content-encoding" not in stream.headers
        await until(stream, "up-to-date")
        for number in range(5):
            # The next one is only appended once this one is here, so nothing
            # can be held back until more comes.
            await site.do("append", "a", text=f"word {number}")
            event = await stream.next()
            assert (event.json(), event.own_id) == (f"word {number}", str(number))
        await site.do("close", "a")
        assert (await stream.next()).event == "done"
        with pytest.raises(StopAsyncIteration):
            await stream.next()
        assert stream.ended


async def test_the_headers_are_the_promised_ones_and_none_is_hop_by_hop(
    site: Site,
) -> None:
    await site.do("open", "a")
    async with site.watch("a") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-length" not in stream.headers
        assert "keep-alive" not in stream.headers


async def test_a_reader_that_was_cut_goes_on_where_it_was(site: Site) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text=["0", "1", "2"])
    async with site.watch("a") as stream:
        last = [await stream.next(), await stream.next()][-1]
        stream.abort()
    await site.do("append", "a", text="3")
    headers = {"Last-Event-ID": last.id}
    async with site.watch("a", headers=headers) as stream:
        assert [(await stream.next()).json() for _ in range(2)] == ["2", "3"]
        await site.do("error", "a", text="gone")
        end = await until(stream, "error")
        assert (end.json(), end.own_id) == ({"reason": "gone"}, "4")
    headers = {"Last-Event-ID": end.id}
    async with site.watch("a", headers=headers) as stream:
        assert (stream.status, await stream.text()) == (204, "")


async def test_a_fresh_reader_of_a_running_stream_gets_everything(site: Site) -> None:
    await site.do("open", "a")
    await site.do("append", "a", text=[str(n) for n in range(40)])
    async with site.watch("a") as stream:
        assert [(await stream.next()).json() for _ in range(40)] == [
            str(n) for n in range(40)
        ]
        assert (await stream.next()).event == "up-to-date"
        await site.do("append", "a", text="live")
        assert (await stream.next()).json() == "live"


async def test_a_hundred_dead_readers_leave_nothing_behind(site: Site) -> None:
    await site.do("open", "a")
    before = await site.stats()
    async with contextlib.AsyncExitStack() as stack:
        readers = [await stack.enter_async_context(site.watch("a")) for _ in range(100)]
        for reader in readers:
            await until(reader, "up-to-date")
        assert (await site.stats())["tails"] == 100
        for reader in readers[::2]:
            reader.abort()
    after = await site.stats_when(lambda now: now["tasks"] <= before["tasks"])
    assert after["tails"] == 0
    assert after["tasks"] <= before["tasks"]
    assert (after["begun"], after["ended"]) == (100, 100)
    # The server is well, and its housekeeping had nothing to complain about.
    async with site.watch("a") as stream:
        await until(stream, "up-to-date")
        await site.do("append", "a", text="still here")
        assert (await stream.next()).json() == "still here"
    assert "took too long" not in site.server.log()
    assert "Traceback" not in site.server.log()


async def test_replay_is_paced_only_where_the_server_buffers(site: Site) -> None:
    buffers = (await site.stats())["buffers"]
    assert buffers is (site.server.server == "daphne")


async def test_a_large_replay_arrives_whole(site: Site) -> None:
    await site.do("open", "a")
    await site.do("fill", "a", count=3000, size=1000)
    await site.do("close", "a")
    async with site.watch("a") as stream:
        ids = [int(event.own_id or -1) async for event in stream if event.own_id]
    assert ids == list(range(3001))


async def test_a_head_request_has_the_headers_and_no_body(site: Site) -> None:
    await site.do("open", "a")
    async with site.watch("a", method="HEAD") as stream:
        assert stream.status == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
    assert (await site.stats_when(lambda now: not now["tails"]))["tails"] == 0


async def test_heartbeats_come_in_silence_and_move_no_id(sqlite_db: str) -> None:
    options = {"SITE_STREAMS": json.dumps({"SSE_HEARTBEAT": 0.1})}
    with LiveServer(APP, server="uvicorn", env=options) as server:
        site = Site(server)
        await site.do("open", "a")
        await site.do("append", "a", text="x")
        async with site.watch("a") as stream:
            await until(stream, "up-to-date")
            waiting = asyncio.create_task(stream.next())
            async with asyncio.timeout(10):
                while len(stream.comments) < 3:
                    await asyncio.sleep(0.02)
            await site.do("append", "a", text="y")
            assert (await waiting).own_id == "1"
            assert len(stream.parser.retries) == 1


async def test_a_client_that_takes_nothing_loses_its_response(sqlite_db: str) -> None:
    options = {"SITE_STREAMS": json.dumps({"SSE_SEND_TIMEOUT": 0.3})}
    with LiveServer(APP, server="uvicorn", env=options) as server:
        site = Site(server)
        await site.do("open", "a")
        await site.do("fill", "a", count=10_000, size=1000)
        async with site.watch("a", buffer=4096):
            seen = await site.stats_when(lambda now: now.get("ended") == 1)
            assert (seen["begun"], seen["ended"], seen["tails"]) == (1, 1, 0)
        assert "took no byte" in server.log()
