"""Many viewers, and ones that do not read: what they cost a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
import urllib.request
from typing import Any

from django.db import connections
from websockets.asyncio.client import connect

from benchmarks.crowd import Crowd, request
from benchmarks.machine import allow_many_files, resident, settled_resident
from django_streams import Streams, conf
from django_streams.testing.sse import open_sse
from tests.contract.waiting import outside
from tests.liveserver import LiveServer
from tests.wire.raw import visit

APP = "tests.integration.sse_asgi:application"
NAME = "ds_test_site"
CHAT = "tests.integration.chat_asgi:application"
VIEWERS = 400
CHATS = 200
WINDOW = 2.5
"""Seconds for which they are watched: a few polls."""

MIB = 2**20
UNREAD = 20
"""MiB of the log that nobody reads."""

HELD = 4 * MIB
"""What a reader that does not read may hold where the server pushes back."""


def get(server: LiveServer, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}/{path}") as answer:
        return json.loads(answer.read())


def sessions(alias: str) -> int:
    """Connections of the site to its database."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE "
            "datname = current_database() AND application_name = %s",
            [NAME],
        )
        return int(cursor.fetchone()[0])


def transactions(alias: str) -> int:
    """How many there were in the run's database, our own too."""
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database "
            "WHERE datname = current_database()"
        )
        return int(cursor.fetchone()[0])


def test_idle_viewers_ask_nothing_of_their_own_and_open_no_connection(
    postgresql_db: str,
) -> None:
    """Each on a stream of its own: nothing is shared but the poll."""
    allow_many_files()
    streams = Streams(using=postgresql_db)
    for number in range(VIEWERS):
        streams.open(f"s{number}").append("before")
    paths = [f"/watched/s{number}" for number in range(VIEWERS)]
    env = {
        "SITE_STREAMS": json.dumps({"DATABASE": postgresql_db}),
        "PGAPPNAME": NAME,
    }
    with LiveServer(APP, env=env) as server, Crowd(server.port) as crowd:
        crowd.gather(map(request, paths))
        assert get(server, "stats")["tails"] == VIEWERS
        # From a burst of polls at the beginning to the slowest.
        assert any(_is_idle(server) for _ in range(6))
        assert sessions(postgresql_db) <= conf.get().READ_POOL + 3


def test_idle_chats_share_one_question_and_few_connections(postgresql_db: str) -> None:
    """Each in a conversation of its own."""
    allow_many_files()
    env = {
        "DJANGO_SETTINGS_MODULE": "tests.integration.chat_settings",
        "DS_CHAT_DATABASE": postgresql_db,
        "PGAPPNAME": NAME,
    }

    async def watch(server: LiveServer) -> None:
        headers = {"Cookie": visit(server), "Origin": server.url}
        async with contextlib.AsyncExitStack() as stack:
            at_once = asyncio.Semaphore(10)

            async def enter(number: int) -> None:
                url = f"{server.ws_url}/agents/paced/room-{number}"
                async with at_once:
                    chat = await stack.enter_async_context(
                        connect(url, additional_headers=headers)
                    )
                    assert "cf_agent_identity" in str(await chat.recv())
                    assert "cf_agent_chat_messages" in str(await chat.recv())

            async with asyncio.timeout(30):
                await asyncio.gather(*map(enter, range(CHATS)))
            for _ in range(20):
                before = await outside(transactions, postgresql_db)
                began = time.monotonic()
                await asyncio.sleep(WINDOW)
                polls = (time.monotonic() - began) / conf.get().POLL_MAX
                asked = await outside(transactions, postgresql_db) - before
                # With what asking for the number takes; one of its own for each
                # would be 200 a second.
                if asked <= 8 * math.ceil(polls):
                    break
            else:
                raise AssertionError(f"{asked} questions in {WINDOW} s")
            open_now = await outside(sessions, postgresql_db)
            assert open_now <= conf.get().READ_POOL + 3

    with LiveServer(CHAT, env=env) as server:
        asyncio.run(watch(server))


def _is_idle(server: LiveServer) -> bool:
    """Whether it asks no more than one poll in ``POLL_MAX`` seconds for all."""
    began = time.monotonic()
    asked = _per_window(server, WINDOW)
    polls = (time.monotonic() - began) / conf.get().POLL_MAX
    return asked <= math.ceil(polls) + 1


def _per_window(server: LiveServer, seconds: float) -> int:
    get(server, "queries")
    time.sleep(seconds)
    return sum(get(server, "queries").values())


def test_who_reads_nothing_of_a_long_log_holds_little_of_it(sqlite_db: str) -> None:
    """uvicorn stops asking once the sockets are full."""
    readers = 8
    store(UNREAD)
    with LiveServer(APP, server="uvicorn") as server:
        for _ in range(2):
            read_all(server)
        before = resident(server.pid)
        with Crowd(server.port) as crowd:
            for _ in range(readers):
                crowd.ignore(crowd.ask(request("/watched/long")))
            # Most of it at once, and then no more.
            sizes = [settled_resident(server.pid, 2.0) for _ in range(3)]
        assert max(sizes) - before <= HELD * readers


def store(mebibytes: int) -> None:
    writer = Streams().open("long")
    for _ in range(mebibytes):
        writer.extend(["x" * 1021] * 1024)
    writer.close()


def read_all(server: LiveServer) -> float:
    """Seconds that a replay of the whole log took."""

    async def read() -> None:
        async with open_sse(f"{server.url}/watched/long") as stream:
            async for _ in stream:
                pass

    began = time.monotonic()
    asyncio.run(read())
    return time.monotonic() - began


def test_under_daphne_a_log_goes_out_at_the_pace_of_the_setting(sqlite_db: str) -> None:
    """Also to who reads nothing, for whom Daphne keeps it."""
    pace = conf.get().SSE_PACE
    assert pace is not None
    readers = 4
    store(UNREAD)
    with LiveServer(APP, server="daphne") as server:
        assert read_all(server) >= UNREAD * MIB / pace - 0.2
        before = settled_resident(server.pid, 2.0)
        with Crowd(server.port) as crowd:
            began = time.monotonic()
            for _ in range(readers):
                crowd.ignore(crowd.ask(request("/watched/long")))
            for _ in range(5):
                time.sleep(0.2)
                grown = (resident(server.pid) - before) / readers
                # What Daphne keeps takes some more than the bytes themselves.
                assert grown <= 1.5 * pace * (time.monotonic() - began) + MIB
