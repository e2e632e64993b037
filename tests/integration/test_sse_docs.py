"""The Python of the how-to on server-sent events is executed here."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.http import Http404, HttpRequest
from django.test import AsyncRequestFactory

from django_streams import Streams, access
from django_streams.sse.response import SSEResponse
from tests.integration.sse_reading import events
from tests.liveserver import LiveServer
from tests.sizes import ROOT

PAGE = ROOT / "docs/howto/sse.md"


@pytest.fixture
def page() -> dict[str, Any]:
    """What the page's code defines."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102
    return names


@pytest.fixture
def member(sqlite_db: str) -> User:
    user = User.objects.create_user("ada")
    user.groups.add(Group.objects.create(name="5"))
    return user


@pytest.fixture
def stranger(sqlite_db: str) -> User:
    return User.objects.create_user("bob")


def by(request: HttpRequest, user: User) -> HttpRequest:
    async def auser() -> User:
        return user

    request.user = user
    request.auser = auser
    return request


async def test_the_report_is_written_and_belongs_to_who_asked(
    page: dict[str, Any], sqlite_db: str, settings: Any
) -> None:
    settings.ROOT_URLCONF = "tests.integration.sse_site"
    request = AsyncRequestFactory().post("/", {"topic": "bees"})
    request.session = SessionStore()
    answer = await page["start_report"](request)
    assert answer.status_code == 202
    (status,) = await Streams().alist()
    owner = await Streams().aowner_of(status.stream_id)
    assert owner == access.owner_key({"session": request.session})
    words = [chunk.chunk async for chunk in Streams().aread(status.stream_id)]
    assert "".join(words) == "A report about bees "


async def test_a_view_of_ones_own_decides_before_it_answers(
    page: dict[str, Any], member: User, stranger: User
) -> None:
    async with await Streams().aopen("team-5") as writer:
        await writer.aappend("for us")
    request = AsyncRequestFactory().get("/")
    response = await page["team_events"](by(request, member), "5")
    assert isinstance(response, SSEResponse)
    assert (await events(response))[0] == ("message", "for us", "0")
    with pytest.raises(Http404):
        await page["team_events"](by(request, stranger), "5")


def test_the_policy_lets_the_team_read_and_nobody_else_and_nothing_more(
    page: dict[str, Any], member: User, stranger: User
) -> None:
    policy = page["TeamPolicy"]()
    ada, bob = access.Subject(member), access.Subject(stranger)
    assert policy.can_read(ada, "team:5")
    assert policy.can_read(ada, f"u:{member.pk}")
    assert not policy.can_read(bob, "team:5")
    assert not policy.can_read(access.Subject(), "team:5")
    assert not policy.can_read(ada, "")
    assert not policy.can_write(ada, "team:5")


async def test_the_reader_for_tests_reads(page: dict[str, Any], sqlite_db: str) -> None:
    async with await Streams().aopen("report-1") as writer:
        await writer.aextend(["a", {"b": 1}])
    with LiveServer("tests.integration.sse_asgi:application") as server:
        # The page's URL is the guarded one; this site has an open one beside it.
        base = server.url + "/open"
        assert await page["read_report"](base) == ["a", {"b": 1}]
