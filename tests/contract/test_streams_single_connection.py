"""SINGLE_CONNECTION: streams inside TestCase, whose rows no other thread sees."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from asgiref.sync import async_to_sync
from django.test import TestCase, override_settings
from pytest_django.plugin import DjangoDbBlocker

from django_streams import StreamNotFoundError, Streams, StreamState
from tests import services
from tests.databases import Databases

from .conftest import SHORT
from .waiting import WITHIN

SINGLE = SHORT | {"SINGLE_CONNECTION": True}


@pytest.fixture(autouse=True)
def short_timers() -> None:
    """The classes below bring their own settings."""


@pytest.fixture(autouse=True, scope="module")
def made(
    databases: Databases, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """TestCase takes it for granted that its databases exist."""
    with django_db_blocker.unblock():
        for alias in ("postgresql", "mariadb"):
            if services.BY_NAME[alias].missing() is None:
                databases.ensure(alias)


class Both:
    """What works inside a transaction that is never committed."""

    alias: ClassVar[str]

    def setUp(self) -> None:
        self.streams = Streams(using=self.alias)
        assert not self.streams.list(), "the test before left something"

    def test_a_sync_producer_and_reader(self) -> None:
        writer = self.streams.open("s", lease=30)
        writer.append("a")
        for number in range(20):
            writer.push(number)
        writer.close(commit=lambda: None)
        assert [c.chunk for c in self.streams.read("s")] == ["a", *range(20)]
        assert self.streams.delete("s") is True

    async def test_an_async_producer_and_reader(self) -> None:
        writer = await self.streams.aopen("s", lease=30)
        reading = asyncio.create_task(self.collect())
        await writer.aappend("a")
        for number in range(20):
            await writer.apush(number)
        await writer.aclose(commit=lambda: None)
        assert await reading == ["a", *range(20)]
        status = await self.streams.astatus("s")
        assert status is not None
        assert status.state is StreamState.COMPLETED
        assert await self.streams.adelete("s") is True

    async def collect(self) -> list[Any]:
        async with asyncio.timeout(WITHIN):
            return [c.chunk async for c in self.streams.aread("s")]

    async def test_an_async_read_of_what_is_unknown(self) -> None:
        with pytest.raises(StreamNotFoundError):
            await self.collect()

    def test_a_sync_view_that_calls_async_code(self) -> None:
        async def view() -> None:
            async with await self.streams.aopen("s") as writer:
                await writer.aappend("a")
                await writer.aextend(["b", "c"])

        async_to_sync(view)()
        assert [c.chunk for c in self.streams.read("s")] == ["a", "b", "c"]

    async def test_a_background_producer(self) -> None:
        await self.streams.aproduce("s", ["a", "b", "c"])
        assert await self.collect() == ["a", "b", "c"]

    def test_a_producer_of_a_sync_view(self) -> None:
        self.streams.produce("s", ["a", "b", "c"])
        reader = self.streams.read("s", timeout=WITHIN)
        assert [c.chunk for c in reader] == ["a", "b", "c"]


@override_settings(DJANGO_STREAMS=SINGLE)
class SqliteTestCase(Both, TestCase):
    alias = "default"
    databases = {"default"}  # noqa: RUF012 - as Django declares it


@pytest.mark.needs("postgresql")
@override_settings(DJANGO_STREAMS=SINGLE)
class PostgresqlTestCase(Both, TestCase):
    alias = "postgresql"
    databases = {"postgresql"}  # noqa: RUF012 - as Django declares it


@pytest.mark.needs("mariadb")
@override_settings(DJANGO_STREAMS=SINGLE)
class MariadbTestCase(Both, TestCase):
    alias = "mariadb"
    databases = {"mariadb"}  # noqa: RUF012 - as Django declares it


def test_nothing_of_a_test_case_remains(sqlite_db: str) -> None:
    """The rows above were rolled back, not deleted by hand."""
    assert not Streams(using=sqlite_db).list()
