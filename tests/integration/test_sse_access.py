"""The shipped URL: who may follow a stream, and how a denial looks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client
from django.urls import reverse

from django_streams import Streams, access, conf
from django_streams.testing.sse import open_sse
from tests.liveserver import SERVERS, LiveServer

APP = "tests.integration.sse_asgi:application"
RECHECK = {"SITE_STREAMS": json.dumps({"ACCESS_RECHECK": 0.1})}

R = TypeVar("R")


@dataclass
class Person:
    """A user of the site, or a visitor, and the cookie of the session."""

    key: str
    cookie: dict[str, str]
    user: User | None = None


def user(name: str) -> Person:
    found = User.objects.create_user(name)
    client = Client()
    client.force_login(found)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    return Person(f"u:{found.pk}", cookie(session), found)


def visitor() -> Person:
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    key = access.owner_key({"session": session}, create=True)
    session.save()
    assert key is not None
    return Person(key, cookie(session.session_key))


def cookie(session: str) -> dict[str, str]:
    return {"Cookie": f"{settings.SESSION_COOKIE_NAME}={session}"}


async def in_database(work: Callable[[], R]) -> R:
    def run() -> R:
        try:
            return work()
        finally:
            connections.close_all()

    return await asyncio.to_thread(run)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, sqlite_db: str) -> Iterator[LiveServer]:
    with LiveServer(APP, server=request.param, env=RECHECK) as server:
        yield server


@pytest.fixture
def ada(sqlite_db: str) -> Person:
    return user("ada")


@pytest.fixture
def bob(sqlite_db: str) -> Person:
    return user("bob")


async def answer(
    server: LiveServer, stream_id: str, headers: dict[str, str], method: str = "GET"
) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of what is no stream of events."""
    url = f"{server.url}/streams/{quote(stream_id, safe='')}/events"
    async with open_sse(url, headers=headers, method=method) as got:
        kept = {name: value for name, value in got.headers.items() if name != "date"}
        return got.status, kept, await got.text()


async def follow(server: LiveServer, person: Person, stream_id: str) -> list[str]:
    """The names of all events until the response ends."""
    url = f"{server.url}/streams/{quote(stream_id, safe='')}/events"
    async with open_sse(url, headers=person.cookie) as got:
        assert got.status == 200
        return [event.event async for event in got]


async def finished(stream_id: str, owner: str | None) -> None:
    writer = await Streams().aopen(stream_id, owner=owner)
    await writer.aappend("secret")
    await writer.aclose()


async def test_the_owner_follows_and_everybody_else_gets_what_an_unknown_id_gets(
    server: LiveServer, ada: Person, bob: Person
) -> None:
    mallory = await in_database(visitor)
    strangers = [bob.cookie, mallory.cookie, {}, {"Cookie": "sessionid=made-up"}]
    unknown = [await answer(server, "a", headers) for headers in strangers]
    await finished("a", ada.key)
    assert [await answer(server, "a", headers) for headers in strangers] == unknown
    assert {status for status, _, _ in unknown} == {404}
    assert not any("secret" in body for _, _, body in unknown)
    assert await follow(server, ada, "a") == ["message", "up-to-date", "done"]
    # An edge of the stream that only its reader may learn tells nobody else.
    edges = {"Last-Event-ID": "1"}
    assert (await answer(server, "a", ada.cookie | edges))[0] == 204
    assert (await answer(server, "a", bob.cookie | edges)) == unknown[0]
    assert (await answer(server, "a", bob.cookie, "HEAD"))[0] == 404


async def test_a_stream_without_an_owner_is_nobodys(
    server: LiveServer, ada: Person
) -> None:
    unknown = await answer(server, "a", ada.cookie)
    await finished("a", None)
    assert await answer(server, "a", ada.cookie) == unknown


async def test_a_visitor_follows_what_belongs_to_the_session(
    server: LiveServer, bob: Person
) -> None:
    mine = await in_database(visitor)
    await finished("a", mine.key)
    assert "done" in await follow(server, mine, "a")
    assert (await answer(server, "a", bob.cookie))[0] == 404


@pytest.mark.parametrize("how", ["deactivated", "deleted", "logged out"])
async def test_a_reader_who_loses_access_loses_the_stream(
    server: LiveServer, ada: Person, how: str
) -> None:
    def revoke() -> None:
        if how == "deactivated":
            User.objects.update(is_active=False)
        elif how == "deleted":
            User.objects.all().delete()
        else:
            import_module(
                "django.contrib.sessions.models"
            ).Session.objects.all().delete()

    writer = await Streams().aopen("a", owner=ada.key)
    url = f"{server.url}/streams/a/events"
    async with open_sse(url, headers=ada.cookie) as stream:
        assert (await stream.next()).event == "up-to-date"
        # The server learns of this one by its poll: by then it has asked anew.
        await writer.aappend("still in")
        assert (await stream.next()).json() == "still in"
        await in_database(revoke)
        async with asyncio.timeout(10):
            assert [event async for event in stream] == []
        assert stream.ended
    assert (await answer(server, "a", ada.cookie))[0] == 404


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
async def test_viewers_hold_no_database_connection_of_their_own(
    server: LiveServer, ada: Person
) -> None:
    await Streams().aopen("a", owner=ada.key)
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(30):
            url = f"{server.url}/streams/a/events"
            opening = open_sse(url, headers=ada.cookie)
            stream = await stack.enter_async_context(opening)
            assert (await stream.next()).event == "up-to-date"
        names = [file.readlink().name for file in open_files(server.pid)]
        connections_of_server = names.count(Path(settings.SQLITE_FILE).name)
        assert 0 < connections_of_server <= conf.get().READ_POOL + 3


def open_files(pid: int) -> list[Path]:
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            file.readlink()
            found.append(file)
    return found


async def test_other_methods_are_refused_whatever_the_stream(
    server: LiveServer, ada: Person
) -> None:
    await finished("a", ada.key)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        status, headers, _ = await answer(server, "a", ada.cookie, method)
        assert status in (403, 405)
        if status == 405:
            assert headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("stream_id", ["a/b", "a/events", "ü €", "50%", "a?b#c", "a+b"])
async def test_ids_of_any_characters_have_a_url(
    server: LiveServer, ada: Person, stream_id: str
) -> None:
    await finished(stream_id, ada.key)
    assert "done" in await follow(server, ada, stream_id)
    path = reverse(
        "django_streams:stream-events",
        args=[stream_id],
        urlconf="tests.integration.sse_site",
    )
    async with open_sse(server.url + path, headers=ada.cookie) as got:
        assert got.status == 200
