"""One conversation on several server processes, without sticky sessions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.conftest import RealDb
from tests.integration.chat_site import words
from tests.integration.chatting import MESSAGES, RESPONSE, message_text, text_of
from tests.liveserver import LiveServer
from tests.wire.raw import RawTab, stored, visit

APP = "tests.integration.chat_asgi:application"
LEASE = 1.0


@dataclass
class Site:
    a: LiveServer
    b: LiveServer
    cookie: str


KINDS = [
    pytest.param(("default", ""), id="sqlite-poll"),
    pytest.param(
        ("postgresql", ""),
        id="postgresql-poll",
        marks=pytest.mark.needs("postgresql"),
    ),
    pytest.param(
        ("postgresql", "redis"),
        id="postgresql-redis",
        marks=pytest.mark.needs("postgresql", "redis"),
    ),
]


@contextmanager
def two_servers(
    kind: tuple[str, str], lease: float = 5.0
) -> Iterator[tuple[LiveServer, LiveServer]]:
    alias, layer = kind
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
        "DS_CHAT_DATABASE": alias,
        "DS_CHAT_LAYER": layer,
        "DS_CHAT_LEASE": str(lease),
    }
    with LiveServer(APP, env=env) as a, LiveServer(APP, env=env) as b:
        yield a, b
        for server in (a, b):
            # In order, where it still runs: a statement that a killed process
            # had under way is carried out while the tables are emptied.
            server.stop()
        logs = a.log() + b.log()
    assert "Traceback" not in logs, logs


@pytest.fixture(scope="module", params=KINDS)
def shared(
    request: pytest.FixtureRequest, module_db: RealDb
) -> Iterator[tuple[LiveServer, LiveServer]]:
    """Servers that no test harms; each test is another visitor."""
    for alias in {"default", request.param[0]}:
        module_db(alias)
    with two_servers(request.param) as servers:
        yield servers


@pytest.fixture
def site(shared: tuple[LiveServer, LiveServer]) -> Site:
    a, b = shared
    return Site(a, b, visit(a))


@pytest.fixture(params=KINDS)
def mortal(request: pytest.FixtureRequest, real_db: RealDb) -> Iterator[Site]:
    """Servers of one test, which may kill the first."""
    for alias in ("default", request.param[0]):
        real_db(alias)
    with two_servers(request.param, LEASE) as (a, b):
        yield Site(a, b, visit(a))


async def test_another_process_shows_the_reply_as_it_is_written(site: Site) -> None:
    async with RawTab(site.a, site.cookie) as one, RawTab(site.b, site.cookie) as two:
        await two.next()
        await two.next()
        await one.ask("100 0.02")
        mine, theirs = await asyncio.gather(one.done(), two.done())
    assert text_of(mine) == text_of(theirs) == words(100)
    assert [f["type"] for f in theirs[-2:]] == [MESSAGES, RESPONSE]
    assert theirs[-2]["messages"] == stored(site.b, site.cookie)


async def test_a_reply_is_resumed_in_another_process(site: Site) -> None:
    async with RawTab(site.a, site.cookie) as tab:
        await tab.ask("100 0.02")
        await tab.until(RESPONSE, seq=10)
        tab.cut()
    async with RawTab(site.b, site.cookie) as tab:
        await tab.resume()
        assert text_of(await tab.done()) == words(100)


async def test_stop_reaches_the_process_that_writes_within_a_second(
    site: Site,
) -> None:
    async with RawTab(site.a, site.cookie) as one, RawTab(site.b, site.cookie) as two:
        await two.next()
        await one.ask("1000 0.02")
        await one.until(RESPONSE, seq=10)
        asked = time.monotonic()
        await two.cancel()
        frames = await one.done()
        took = time.monotonic() - asked
        assert frames[-1]["outcome"] == "aborted"
        assert (await two.done())[-1]["outcome"] == "aborted"
    # The poll is at most a second; the writer is then stopped at once.
    assert took < 2.0, took
    partial = message_text(stored(site.b, site.cookie)[1])
    assert partial and words(1000).startswith(partial)


async def test_two_submits_at_once_to_two_processes_run_one_after_the_other(
    site: Site,
) -> None:
    async with RawTab(site.a, site.cookie) as one, RawTab(site.b, site.cookie) as two:
        await one.next()
        await two.next()
        await asyncio.gather(one.ask("40 0.01", "qa"), two.ask("40 0.01", "qb"))
        first, second = await asyncio.gather(one.done("qa"), two.done("qb"))
        if "qb" not in {f.get("id") for f in one.kept if f.get("done")}:
            await one.done("qb")
        if "qa" not in {f.get("id") for f in two.kept if f.get("done")}:
            await two.done("qa")
    assert text_of(first, "qa") == text_of(second, "qb") == words(40)
    for tab in (one, two):
        assert text_of(tab.kept, "qa") == text_of(tab.kept, "qb") == words(40)
        order = [f["id"] for f in tab.kept if f["type"] == RESPONSE]
        # One turn's frames, then the other's.
        assert order in (sorted(order), sorted(order, reverse=True))
    assert len(stored(site.a, site.cookie)) == 4


async def test_the_death_of_the_writing_process_is_told_to_all_others(
    mortal: Site,
) -> None:
    async with RawTab(mortal.b, mortal.cookie, agent="fragile") as watching:
        await watching.next()
        await watching.next()
        async with RawTab(mortal.a, mortal.cookie, agent="fragile") as tab:
            await tab.ask("1000 0.02")
            await watching.until(RESPONSE, seq=20)
            mortal.a.kill()
            died = time.monotonic()
        frames = await watching.done()
        took = time.monotonic() - died
        last = frames[-1]
        assert (last["error"], last["body"]) == (True, "The reply was interrupted.")
        assert frames[-2]["type"] == MESSAGES
        # Lease, one poll, and what a busy machine adds.
        assert took < LEASE + 4, took
        shown = text_of(watching.kept)
        messages = stored(mortal.b, mortal.cookie, agent="fragile")
        assert message_text(messages[1]) == shown
        assert words(1000).startswith(shown)
        # The conversation goes on in the process that is left.
        await watching.ask("5 0", "q2")
        assert text_of(await watching.done("q2"), "q2") == words(5)


async def test_a_reply_is_continued_when_the_writing_process_dies(mortal: Site) -> None:
    async with RawTab(mortal.b, mortal.cookie) as watching:
        await watching.next()
        await watching.next()
        async with RawTab(mortal.a, mortal.cookie) as tab:
            await tab.ask("150 0.02")
            await watching.until(RESPONSE, seq=20)
            mortal.a.kill()
        await watching.done()
        assert text_of(watching.kept) == words(150)
        messages = stored(mortal.b, mortal.cookie)
        assert message_text(messages[1]) == words(150)
        assert len(messages) == 2


async def test_a_turn_queued_in_a_process_that_died_is_run_by_another(
    mortal: Site,
) -> None:
    async with RawTab(mortal.b, mortal.cookie) as watching:
        await watching.next()
        await watching.next()
        async with RawTab(mortal.a, mortal.cookie) as tab:
            # The other process says the rest of it first.
            await tab.ask("200 0.02", "q1")
            await tab.until(RESPONSE, seq=5)
            await tab.ask("7 0", "q2")
            while "u-q2" not in str(await watching.until(MESSAGES)):
                pass
            mortal.a.kill()
            assert not any(frame.get("done") for frame in watching.kept)
        assert text_of(await watching.done("q2"), "q2") == words(7)
