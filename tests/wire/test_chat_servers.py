"""The chat on real servers: dropped sockets, sizes, and who is let in."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.conftest import RealDb
from tests.integration.chat_site import words
from tests.integration.chatting import RESPONSE, message_text, responses, text_of
from tests.liveserver import SERVERS, LiveServer, Server

from .raw import RawTab, stored, visit

APP = "tests.integration.chat_asgi:application"
ENV = {"DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings"}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, module_db: RealDb) -> Iterator[LiveServer]:
    """A server that no test harms; each test is another visitor."""
    module_db("default")
    kind: Server = request.param
    with live(kind) as running:
        yield running


@contextmanager
def live(kind: Server, **env: str) -> Iterator[LiveServer]:
    with LiveServer(APP, server=kind, env=ENV | env) as running:
        yield running
        running.stop()
        log = running.log()
    assert "Traceback" not in log, log


async def test_a_reply_survives_dropped_sockets_and_ends_exactly_once(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie) as tab:
        await tab.ask("150 0.02")
        await tab.until(RESPONSE, seq=20)
        tab.cut()
    for _ in range(3):
        async with RawTab(server, cookie) as tab:
            await tab.resume()
            await tab.until(RESPONSE, replayComplete=True)
            await tab.until(RESPONSE, done=False)
            tab.cut()
    async with RawTab(server, cookie) as tab:
        await tab.resume()
        frames = await tab.done()
    assert text_of(frames) == words(150)
    seqs = [f["seq"] for f in responses(frames) if "seq" in f]
    assert seqs == list(range(156))
    asked, answer = stored(server, cookie)
    assert asked["id"] == "u-q1"
    assert message_text(answer) == words(150)


async def test_words_arrive_one_by_one(server: LiveServer) -> None:
    async with RawTab(server, visit(server)) as tab:
        await tab.ask("10 0.1")
        await tab.done()
    arrived = [
        at
        for frame, at in zip(tab.kept, tab.times, strict=True)
        if "text-delta" in frame.get("body", "")
    ]
    # Not in one lump at the end: the last came long after the first.
    assert arrived[-1] - arrived[0] > 0.5


async def test_two_tabs_see_the_same_reply(server: LiveServer) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie) as one, RawTab(server, cookie) as two:
        await two.next()
        await two.next()
        await one.ask("40 0.01")
        mine, theirs = await asyncio.gather(one.done(), two.done())
    assert text_of(mine) == text_of(theirs) == words(40)


async def test_refusals_are_close_codes_that_end_the_retrying(
    server: LiveServer,
) -> None:
    for agent, cookie in (("secret", visit(server)), ("paced", "none=1")):
        async with RawTab(server, cookie, agent=agent) as tab:
            with pytest.raises(ConnectionClosed) as closed:
                await tab.next()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
    with pytest.raises(urllib.error.HTTPError, match="401"):
        visit(server, "secret")


async def test_a_page_of_another_origin_is_not_let_in(server: LiveServer) -> None:
    from websockets.asyncio.client import connect

    address = f"{server.ws_url}/agents/paced/room"
    with pytest.raises(InvalidStatus):
        async with connect(address, origin="http://evil.example"):  # type: ignore[arg-type]
            pass


async def test_junk_of_all_kinds_leaves_the_socket_usable(server: LiveServer) -> None:
    async with RawTab(server, visit(server)) as tab:
        for junk in ("", "null", "[" * 100_000, '{"type":"x"}', "\x00", "7"):
            await tab.send(junk)
        await tab.socket.send(b"\xff\xfe")
        await tab.ask("3 0")
        assert text_of(await tab.done()) == words(3)


async def test_a_large_message_is_taken_below_the_limit_of_daphne(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie) as tab:
        text = "2 0" + " " * 900_000
        await tab.ask(text)
        assert text_of(await tab.done()) == words(2)
    assert message_text(stored(server, cookie)[0]) == text


async def test_a_frame_beyond_the_limit_costs_its_socket_alone(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie) as other:
        await other.next()
        async with RawTab(server, cookie) as tab:
            with pytest.raises(ConnectionClosed):
                await tab.send(json.dumps({"type": "x" * 20_000_000}))
                while True:
                    await tab.next()
        await other.ask("3 0")
        assert text_of(await other.done()) == words(3)


async def test_a_reply_outlives_all_its_sockets(server: LiveServer) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie) as tab:
        await tab.ask("60 0.01")
        await tab.until(RESPONSE, seq=3)
    async with asyncio.timeout(10):
        while len(messages := stored(server, cookie)) < 2:
            await asyncio.sleep(0.05)
    assert message_text(messages[1]) == words(60)


async def test_a_replay_is_paced_where_the_server_buffers_without_bound(
    module_db: RealDb,
) -> None:
    module_db("default")
    with live("daphne", DS_CHAT_PACE="100000") as server:
        cookie = visit(server)
        async with RawTab(server, cookie) as tab:
            await tab.ask("1200 0")
            await tab.until(RESPONSE, seq=3)
        while len(stored(server, cookie)) < 2:
            await asyncio.sleep(0.05)
        async with RawTab(server, cookie) as tab:
            await tab.next()
            begun = time.monotonic()
            await tab.send({"type": "cf_agent_stream_resume_ack", "id": "q1"})
            assert text_of(await tab.done()) == words(1200)
            took = time.monotonic() - begun
    # 1,200 frames of more than 100 bytes at 100,000 bytes a second.
    assert took > 0.8, took
