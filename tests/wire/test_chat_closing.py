"""How sockets end on real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import ConnectionClosed

from tests.conftest import RealDb
from tests.integration.chatting import message_text
from tests.liveserver import SERVERS, LiveServer, Server

from .raw import RawTab, stored, visit
from .test_chat_servers import APP, ENV


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, module_db: RealDb) -> Iterator[LiveServer]:
    module_db("default")
    kind: Server = request.param
    with LiveServer(APP, server=kind, env=ENV) as running:
        yield running


async def close_code(tab: RawTab) -> int | None:
    """The code of the close that comes, whatever comes before."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            await tab.next()
    return closed.value.rcvd.code if closed.value.rcvd else None


async def test_a_client_that_floods_is_told_to_stay_away(server: LiveServer) -> None:
    async with RawTab(server, visit(server)) as tab:
        try:
            for _ in range(1500):
                await tab.send({"type": "x"})
        except ConnectionClosed:
            pass
        assert await close_code(tab) == 4429


async def test_a_client_that_cannot_be_admitted_now_is_told_to_return(
    server: LiveServer,
) -> None:
    async with RawTab(server, "none=1", agent="broken") as tab:
        assert await close_code(tab) == 4401
    async with RawTab(server, visit(server), agent="broken") as tab:
        assert await close_code(tab) == 3011


async def until_stored(
    server: LiveServer, cookie: str, room: str, count: int, *, agent: str = "paced"
) -> list[str]:
    """The texts that are stored once there are *count* of them."""
    async with asyncio.timeout(10):
        while len(messages := stored(server, cookie, room, agent=agent)) < count:
            await asyncio.sleep(0.05)
    return [message_text(message) for message in messages]


async def test_what_is_sent_just_before_a_close_is_stored_and_answered(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    for room in ("r0", "r1", "r2", "r3"):
        async with RawTab(server, cookie, room=room) as tab:
            await tab.next()
            await tab.ask("2 0")
    for room in ("r0", "r1", "r2", "r3"):
        assert await until_stored(server, cookie, room, 2) == ["2 0", "w0 w1 "]


async def test_what_is_sent_at_once_after_the_handshake_is_not_lost_by_a_close(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    for room in ("r4", "r5", "r6", "r7"):
        async with RawTab(server, cookie, room=room) as tab:
            await tab.ask("2 0")
    for room in ("r4", "r5", "r6", "r7"):
        assert await until_stored(server, cookie, room, 2) == ["2 0", "w0 w1 "]


async def test_twenty_messages_outlive_the_network_that_brought_them(
    server: LiveServer,
) -> None:
    cookie = visit(server)
    sent: list[str] = []
    async with RawTab(server, cookie, agent="quick", room="many") as tab:
        await tab.next()
        for at in range(20):
            sent.append(f"m{at}")
            await tab.ask(f"m{at}", f"q{at}")
        # The pong says that the server has read what went before the ping.
        await (await tab.socket.ping())
        tab.cut()
    texts = await until_stored(server, cookie, "many", 40, agent="quick")
    assert [text for text in texts if not text.startswith("re ")] == sent


async def test_an_approval_just_before_a_close_counts(server: LiveServer) -> None:
    cookie = visit(server)
    async with RawTab(server, cookie, agent="careful", room="ok") as tab:
        await tab.next()
        await tab.ask("go")
        await tab.done()
        await tab.send(
            {
                "type": "cf_agent_tool_approval",
                "toolCallId": "c1",
                "approved": True,
                "autoContinue": True,
            }
        )
    async with asyncio.timeout(10):
        while "approval-requested" in json.dumps(
            stored(server, cookie, "ok", agent="careful")
        ):
            await asyncio.sleep(0.05)
