"""What a process has just stored reaches its own readers without a question."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from django_streams import Streams
from django_streams.feed import Feed, get_hub
from django_streams.reader import Follower
from django_streams.store.base import Page, StreamStore

from .stores import DatabaseUnderTest
from .waiting import aeventually


@asynccontextmanager
async def following(streams: Streams) -> AsyncIterator[tuple[Follower, Feed]]:
    """A reader of the stream "s" that is up to date, and the feed it shares."""
    reader = streams.follower("s")
    try:
        while await reader.anext():
            pass
        feed = get_hub().follows(streams.using, reader._pk)
        assert feed is not None
        # The first look of a feed is in the background.
        await aeventually(lambda: not feed._fetching)
        yield reader, feed
    finally:
        reader.leave()


async def texts(reader: Follower, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        parts = await reader.anext()
        assert parts is not None
        found += [text for part in parts for text in part.texts]
    return found


def unpolled(monkeypatch: pytest.MonkeyPatch, feed: Feed) -> None:
    """Let no poll make *feed* look, nor one that is on its way already."""
    monkeypatch.setattr(feed, "seen", lambda head: False)
    monkeypatch.setattr(feed, "rest", lambda: None)
    feed.next_poll = float("inf")


def spied(
    monkeypatch: pytest.MonkeyPatch, streams: Streams, meanwhile: Any = None
) -> list[int]:
    """Where pages are asked for; *meanwhile* is called before one is read."""
    asked: list[int] = []
    store: StreamStore = streams._store
    real = store.page

    def page(pk: int, start: int, max_bytes: int) -> Page | None:
        asked.append(start)
        if meanwhile is not None:
            meanwhile()
        return real(pk, start, max_bytes)

    monkeypatch.setattr(store, "page", page)
    return asked


async def test_an_append_of_this_process_is_read_without_a_page(
    db_store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = db_store.streams()
    writer = await streams.aopen("s")
    async with following(streams) as (reader, feed):
        unpolled(monkeypatch, feed)
        asked = spied(monkeypatch, streams)
        for number in range(5):
            await writer.aappend(number)
            assert await texts(reader, 1) == [str(number)]
        await writer.apush(5)
        await writer.aextend([6, 7])
        assert await texts(reader, 3) == ["5", "6", "7"]
    assert asked == []


async def test_what_another_process_stored_before_it_is_fetched_first(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = await streams.aopen("s")
    async with following(streams) as (reader, feed):
        assert not feed.hand(3, ["3"])
        assert feed.cursor == 0
        await writer.aextend([0, 1, 2, 3])
        assert await texts(reader, 4) == ["0", "1", "2", "3"]


async def test_what_is_handed_again_or_in_part_is_shown_once(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = await streams.aopen("s")
    async with following(streams) as (reader, feed):
        await writer.aextend([0, 1, 2])
        assert await texts(reader, 3) == ["0", "1", "2"]
        assert feed.hand(0, ["0", "1", "2"])
        assert feed.hand(1, ["1"])
        assert feed.cursor == 3
        assert feed.hand(2, ["2", "3"])
        assert feed.cursor == 4
        assert await texts(reader, 1) == ["3"]


async def test_what_is_handed_while_a_page_is_read_is_shown_once(
    db_store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = db_store.streams()
    writer = await streams.aopen("s")
    async with following(streams) as (reader, feed):
        reading, go_on = threading.Event(), threading.Event()

        def meanwhile() -> None:
            if not reading.is_set():
                reading.set()
                assert go_on.wait(10)

        with monkeypatch.context() as patch:
            asked = spied(patch, streams, meanwhile)
            await writer.aextend([0, 1])
            feed.look()
            await aeventually(reading.is_set)
            await writer.aextend([2, 3, 4])
            assert await texts(reader, 5) == ["0", "1", "2", "3", "4"]
            go_on.set()
            await aeventually(lambda: not feed._fetching)
        assert asked
        assert feed.cursor == 5
        await writer.aappend(5)
        assert await texts(reader, 1) == ["5"]


async def test_another_thread_s_wake_is_heard_while_one_is_quiet(
    db_store: DatabaseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = db_store.streams()
    await streams.aopen("s")
    async with following(streams) as (_, feed):
        unpolled(monkeypatch, feed)
        asked = spied(monkeypatch, streams)
        with feed.quiet():
            feed.look()
            assert not feed._fetching
            other = threading.Thread(target=feed.look)
            other.start()
            other.join()
        await aeventually(lambda: bool(asked))
