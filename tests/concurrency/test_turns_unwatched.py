"""Who watches is counted over all server processes, also over one that dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pytest_django.fixtures import Settings

from django_streams.models import Presence
from django_streams.turns import door, queue
from tests.conftest import RealDb
from tests.integration.chatting import RESPONSE, message_text
from tests.liveserver import LiveServer
from tests.wire.raw import RawTab, stored, visit

pytestmark = pytest.mark.needs("postgresql")

APP = "tests.integration.chat_asgi:application"
AGENT = "watched"
GRACE = 1.5
TTL = 1.5
LEASE = 1.0
"""The runner asks whenever it renews the lease, and would have lost the turn if it
did so later than this."""


@dataclass
class Site:
    a: LiveServer
    b: LiveServer
    cookie: str

    def tab(self, server: LiveServer) -> RawTab:
        return RawTab(server, self.cookie, agent=AGENT)


@pytest.fixture
def site(real_db: RealDb, settings: Settings) -> Iterator[Site]:
    real_db("default")
    settings.DJANGO_STREAMS = {"DATABASE": real_db("postgresql")}
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
        "DS_CHAT_DATABASE": "postgresql",
        "DS_CHAT_LEASE": str(LEASE),
        "DS_CHAT_PRESENCE": str(TTL),
    }
    with LiveServer(APP, env=env) as a, LiveServer(APP, env=env) as b:
        yield Site(a, b, visit(a, agent=AGENT))
        for server in (a, b):
            server.stop()
        assert "Traceback" not in (logs := a.log() + b.log()), logs


async def begun(tab: RawTab) -> None:
    await tab.ask("400 0.05")
    await tab.until(RESPONSE, seq=5)


async def status() -> str:
    def read() -> str:
        return str(queue.turns().values_list("status", flat=True).get())

    return await door.run(read)


async def watching(count: int) -> None:
    """Wait until so many connections are known to watch."""

    def look() -> int:
        rows = Presence.objects.using(door.alias()).exclude(process="")
        return rows.count()

    async with asyncio.timeout(10):
        while await door.run(look) != count:
            await asyncio.sleep(0.02)


async def stopped_within(seconds: float) -> None:
    """By the database's clock: from the last one that was seen to the end."""
    async with asyncio.timeout(20):
        while await status() != "aborted":
            await asyncio.sleep(0.05)

    def read() -> float:
        last = Presence.objects.using(door.alias()).latest("seen_at").seen_at
        asked = queue.turns().get().cancel_requested
        assert asked is not None
        return float((asked - last).total_seconds())

    took = await door.run(read)
    assert GRACE <= took <= seconds, took


async def test_a_viewer_in_another_process_is_enough_until_it_leaves(
    site: Site,
) -> None:
    async with site.tab(site.b) as other:
        async with site.tab(site.a) as tab:
            await begun(tab)
            await watching(2)
        await watching(1)
        await asyncio.sleep(GRACE + TTL)
        assert await status() == "running"
        assert other.socket is not None
    await stopped_within(GRACE + LEASE)
    (_, answer) = stored(site.b, site.cookie, agent=AGENT)
    assert message_text(answer).startswith("w0 w1 ")


async def test_who_returns_to_another_process_in_time_keeps_the_reply_going(
    site: Site,
) -> None:
    async with site.tab(site.a) as tab, site.tab(site.b):
        await begun(tab)
        await watching(2)
    await asyncio.sleep(GRACE / 3)
    async with site.tab(site.b) as tab:
        await tab.resume()
        await asyncio.sleep(GRACE + TTL)
        assert await status() == "running"


async def test_a_web_process_that_is_killed_takes_its_viewers_with_it(
    site: Site,
) -> None:
    async with site.tab(site.a) as viewer:
        async with site.tab(site.b) as tab:
            await begun(tab)
            await watching(2)
        # Runs in b and is watched in a.
        await asyncio.sleep(GRACE + TTL)
        assert await status() == "running"
        site.a.kill()
        with pytest.raises(Exception, match="close frame"):
            while True:
                await viewer.next()
    await stopped_within(max(GRACE, TTL) + LEASE)
