"""Processes that treat the library badly: what it then holds, and what goes on."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_streams import Streams, conf
from django_streams.feed import get_hub
from django_streams.ids import stream_key
from django_streams.wake import get_waker
from tests import process
from tests.process import Child

from .logs import clear, stored

LOCAL = {"CHANNEL_LAYER": None}
SHORT_STREAMS = 300
FEEDS = 2000
SOME = 10
"""Something comes on every tenth of them."""

WAKES = 10_000
OUR_THREADS = 5
"""Poll, group commit, keeper, wakes, and the one that a test needs itself."""


@pytest.fixture(params=["default", "postgresql"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


# --- what the children do -----------------------------------------------------


async def come_and_go(alias: str) -> None:
    """Many short streams, each with readers; what is left of them then."""
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)

        async def one(number: int) -> None:
            async with await streams.aopen(f"s{number}", lease=30) as writer:
                reading = asyncio.create_task(read(writer.stream_id))
                await writer.aappend(number)
                await writer.apush(number)
            assert await reading == [number, number]

        async def read(stream_id: str) -> list[Any]:
            return [c.chunk async for c in streams.aread(stream_id)]

        for first in range(0, SHORT_STREAMS, 50):
            await asyncio.gather(*map(one, range(first, first + 50)))
        process.say(
            {
                "threads": threading.active_count(),
                "tasks": len(asyncio.all_tasks()),
                "feeds": len(get_hub().feeds()),
                "most": conf.get().READ_POOL + OUR_THREADS,
            }
        )


def two_loops(alias: str) -> None:
    """One facade and one handle, used on the loops of two threads at once."""
    _let_the_end_close_connections()
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        writer = streams.open("s", lease=30)
        seen: list[list[Any]] = []

        async def work(who: str) -> None:
            async def read() -> None:
                seen.append([c.chunk async for c in streams.aread("s")])

            reading = asyncio.create_task(read())
            for number in range(50):
                if number % 5:
                    await writer.aappend([who, number])
                else:
                    await writer.apush([who, number])
            await writer.aflush()
            await asyncio.to_thread(both.wait, 20)
            await writer.aclose()
            await reading

        both = threading.Barrier(2)
        threads = [
            threading.Thread(target=lambda who=who: asyncio.run(work(who)))
            for who in "ab"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.say(seen)


def loop_that_dies(alias: str) -> None:
    """A loop is closed with readers in it; those of another one go on."""
    with override_settings(DJANGO_STREAMS=LOCAL | {"POLL_MAX": 0.1}):
        streams = Streams(using=alias)
        writer = streams.open("s")
        writer.append(0)
        up = threading.Event()
        loop = asyncio.new_event_loop()

        async def read(count: int) -> list[Any]:
            log = []
            async with contextlib.aclosing(streams.aread("s")) as reader:
                async for chunk in reader:
                    log.append(chunk.chunk)
                    if len(log) == count:
                        return log
            return log

        async def gather() -> None:
            tasks.extend(asyncio.create_task(read(99)) for _ in range(20))
            while sum(feed.readers for feed in get_hub().feeds()) < 20:
                await asyncio.sleep(0.01)
            up.set()

        tasks: list[asyncio.Task[Any]] = []

        def serve() -> None:
            tasks.append(loop.create_task(gather()))
            loop.run_forever()
            # Not as asyncio.run() does: nobody is cancelled.
            loop.close()

        dying = threading.Thread(target=serve)
        dying.start()
        assert up.wait(10)
        loop.call_soon_threadsafe(loop.stop)
        dying.join()

        async def go_on() -> list[Any]:
            reading = asyncio.create_task(read(3))
            other = await streams.aopen("s")
            await other.aappend(1)
            await other.aappend(2)
            async with asyncio.timeout(10):
                return await reading

        process.say(asyncio.run(go_on()))
        # Python has a word to say about each of these tasks; it is the test's.
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]


def end_in_the_middle(alias: str) -> None:
    """The interpreter ends while a thread's loop appends and reads."""
    _let_the_end_close_connections()
    streams = Streams(using=alias)
    writer = streams.open("s")

    async def work() -> None:
        for number in range(100_000):
            await writer.aappend(number)
            if number == 20:
                begun.set()

    async def both() -> None:
        async def read() -> None:
            async for _ in streams.aread("s"):
                pass

        await asyncio.gather(work(), read())

    begun = threading.Event()
    threading.Thread(target=asyncio.run, args=(both(),), daemon=True).start()
    assert begun.wait(10)
    process.say("ending")


async def hold_many(alias: str) -> None:
    """As many followed streams as a large process has, each of its own."""
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)

        async def read(number: int) -> None:
            async with contextlib.aclosing(streams.aread(f"s{number}")) as reader:
                assert (await anext(reader)).chunk == number

        readers = [asyncio.create_task(read(number)) for number in range(FEEDS)]
        while sum(feed.readers for feed in get_hub().feeds()) < FEEDS:
            await asyncio.sleep(0.05)
        process.say("following")
        await asyncio.to_thread(process.hear)
        # Another process appended to some of them; no wake tells of it.
        async with asyncio.timeout(15):
            await asyncio.gather(*readers[::SOME])
        for reader in readers:
            reader.cancel()
        await asyncio.wait(readers)
        process.say([len(get_hub().feeds()), threading.active_count()])


async def storm(alias: str) -> None:
    """Wakes without news: how many questions they cost."""
    asked = 0

    def count(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
        nonlocal asked
        asked += 1
        return execute(sql, params, many, context)

    from django.db.backends.signals import connection_created

    def wrap(connection: Any, **_: Any) -> None:
        connection.execute_wrappers.append(count)

    connection_created.connect(wrap)
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        writer = await streams.aopen("s")
        log: list[Any] = []

        async def read() -> None:
            async for chunk in streams.aread("s"):
                log.append(chunk.chunk)

        reading = asyncio.create_task(read())
        await writer.aappend("before")
        while not log:
            await asyncio.sleep(0.01)
        before = asked

        def wake() -> None:
            for _ in range(WAKES):
                get_waker().wake(stream_key("s"))

        await asyncio.to_thread(wake)
        await writer.aappend("after")
        await writer.aclose()
        async with asyncio.timeout(10):
            await reading
        process.say([log, asked - before])


def without_threads(alias: str) -> None:
    """No thread can be had for a while: first none at all, then none for long."""
    _let_the_end_close_connections()
    names = ("django-streams", "django-streams-commit", "django-streams-poll")
    start = threading.Thread.start
    refused: tuple[str, ...] = names

    def sometimes(thread: threading.Thread) -> None:
        if thread.name in refused:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = sometimes  # type: ignore[method-assign,assignment]
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        writer = streams.open("s")
        writer.append("before")
        said: list[Any] = []

        async def read() -> Any:
            async with contextlib.aclosing(streams.aread("s")) as reader:
                return (await anext(reader)).chunk

        def attempt(call: Any) -> None:
            try:
                said.append(asyncio.run(call))
            except RuntimeError as error:
                said.append(str(error))

        attempt(writer.aappend("refused"))
        attempt(read())
        # What the pool has can be had, a thread for one purpose cannot.
        refused = names[1:]
        attempt(writer.aappend("by the pool"))
        attempt(read())
        refused = ()
        attempt(writer.aappend("after"))
        attempt(read())
        process.say(said)


def _let_the_end_close_connections() -> None:
    # Threads keep theirs; the driver warns when the interpreter takes them.
    warnings.simplefilter("ignore", ResourceWarning)


# --- and what comes of it -----------------------------------------------------


def test_hundreds_of_short_streams_leave_no_thread_task_or_feed(sqlite_db: str) -> None:
    with Child(come_and_go, alias=sqlite_db) as child:
        left = child.hear()
        assert left["threads"] <= left["most"]
        assert left["tasks"] == 1
        assert left["feeds"] == 0
        assert child.wait() == 0
        assert child.stderr() == ""


def test_a_handle_may_be_used_on_the_loops_of_two_threads(alias: str) -> None:
    with Child(two_loops, alias=alias) as child:
        one, two = child.hear()
        assert one == two
        for who in "ab":
            assert [n for w, n in one if w == who] == list(range(50))
        assert child.wait() == 0
        assert child.stderr() == ""


def test_a_call_that_gets_no_thread_is_refused_and_the_next_one_works(
    alias: str,
) -> None:
    """Nothing may count on a thread that is not there."""
    no = "can't start new thread"
    with Child(without_threads, alias=alias) as child:
        assert child.hear() == [no, no, 1, no, 2, "before"]
        assert child.wait() == 0
    log = stored(alias, "s")
    assert log is not None
    assert log.chunks == ["before", "by the pool", "after"]


def test_readers_go_on_beside_a_loop_that_was_closed_with_readers_in_it(
    sqlite_db: str,
) -> None:
    with Child(loop_that_dies, alias=sqlite_db) as child:
        assert child.hear() == [0, 1, 2]


def test_a_process_ends_at_once_in_the_middle_of_its_appends(alias: str) -> None:
    with Child(end_in_the_middle, alias=alias) as child:
        assert child.hear() == "ending"
        assert child.wait() == 0
        assert "Traceback" not in child.stderr()
    log = stored(alias, "s")
    assert log is not None
    assert log.chunks == list(range(len(log.chunks)))
    assert len(log.chunks) > 20


def test_thousands_of_followed_streams_share_the_poll(sqlite_db: str) -> None:
    with transaction.atomic():
        writers = [Streams().open(f"s{number}") for number in range(FEEDS)]
    with Child(hold_many, alias=sqlite_db) as child:
        assert child.hear() == "following"
        for number in range(0, FEEDS, SOME):
            writers[number].append(number)
        child.say("go on")
        feeds, threads = child.hear()
        assert feeds == 0
        assert threads <= conf.get().READ_POOL + OUR_THREADS
        assert child.wait() == 0


def test_a_storm_of_wakes_becomes_a_few_questions(postgresql_db: str) -> None:
    with Child(storm, alias=postgresql_db) as child:
        log, asked = child.hear()
        assert log == ["before", "after"]
        assert asked < WAKES / 10
        assert child.wait() == 0
