"""Both doors behind one: a test written once runs through either.

:class:`SyncDoor` gives the objects as they are, whose appends go straight to
the store. :class:`AsyncDoor` gives objects whose plain methods run the
``a``-twins on one event loop, in a thread of its own, as a server does; their
appends go through group commit, every other one in a batch with another
stream's.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing, closing
from types import TracebackType
from typing import Any, Self, cast

from django.db import connections

from django_streams import StreamChunk, StreamClosedError, Streams, StreamWriter
from django_streams.store.base import Append, Stored, StreamStore

from .waiting import WITHIN, eventually

_END = object()

GONE = 1 << 40
"""Id of no row."""

SOON = 0.03
"""Seconds for which a reader at the tail is left waiting, to see that it waits."""


class Follower:
    """A reader in the background: what it has seen, and how it ended."""

    def __init__(self) -> None:
        self.chunks: list[StreamChunk] = []
        self.end: Future[None] = Future()
        self.stop: Callable[[], None]

    @property
    def values(self) -> list[Any]:
        return [c.chunk for c in self.chunks]

    def wait_for(self, count: int) -> list[Any]:
        """The values, as soon as there are *count*; raises what ended it early."""
        eventually(lambda: len(self.chunks) >= count or self.end.done())
        if len(self.chunks) < count:
            self.end.result(0)
            raise AssertionError(f"ended with {len(self.chunks)} of {count}")
        return self.values

    def finish(self) -> list[Any]:
        """Wait for the end; raises the error with which the reader ended."""
        self.end.result(WITHIN)
        return self.values


class SyncDoor:
    name = "sync"

    def enter(self, streams: Streams) -> Streams:
        return streams

    def follow(self, streams: Streams, stream_id: str, **options: Any) -> Follower:
        """Read in a thread until the end, or until the test is over."""
        follower = Follower()
        stop = threading.Event()

        def run() -> None:
            try:
                for chunk in streams.read(stream_id, stop=stop, **options):
                    follower.chunks.append(chunk)
            except BaseException as error:
                connections.close_all()
                follower.end.set_exception(error)
            else:
                connections.close_all()
                follower.end.set_result(None)

        thread = threading.Thread(target=run, name=f"reader of {stream_id}")

        def halt() -> None:
            stop.set()
            thread.join(WITHIN)
            assert not thread.is_alive(), "a sync reader ignored its stop event"

        follower.stop = halt
        thread.start()
        return follower

    def next_within(self, streams: Streams, stream_id: str, start: int) -> Any:
        """The next chunk from *start*; TimeoutError where a reader would wait."""
        with closing(streams.read(stream_id, start=start, timeout=SOON)) as reader:
            return next(reader, None)

    def close(self) -> None:
        pass


class Company:
    """Gives every other batch of one entry a second one, of a stream that is gone.

    A test alone never fills a batch, and a store may have another statement for
    many than for one.
    """

    def __init__(self, store: StreamStore) -> None:
        self._store = store
        self._real = store.append_batch
        self._batches = 0
        self.given = 0
        setattr(store, "append_batch", self._append_batch)  # noqa: B010

    def _append_batch(self, entries: Sequence[Append]) -> list[Stored]:
        self._batches += 1
        if len(entries) > 1 or self._batches % 2:
            return self._real(entries)
        self.given += 1
        gone = Append(GONE, "gone", 1, 0, 1, ('"company"',))
        *results, refused = self._real([*entries, gone])
        assert isinstance(refused, StreamClosedError)
        return results

    def leave(self) -> None:
        delattr(self._store, "append_batch")


class AsyncDoor:
    name = "async"

    def __init__(self) -> None:
        self.company: Company | None = None
        self._loop = asyncio.new_event_loop()
        self._halt = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="the async door")
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._halt.wait())

    def run(self, awaitable: Awaitable[Any]) -> Any:
        async def step() -> Any:
            return await awaitable

        return self.submit(step()).result(WITHIN)

    def submit(self, coroutine: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def enter(self, streams: Streams) -> Streams:
        if self.company is None:
            self.company = Company(streams._store)
        return cast(Streams, Twin(self, streams))

    def follow(self, streams: Streams, stream_id: str, **options: Any) -> Follower:
        """Read in a task until the end, or until the test is over."""
        follower = Follower()
        real = cast(Twin, streams)._target

        async def run() -> None:
            async with aclosing(real.aread(stream_id, **options)) as reader:
                async for chunk in reader:
                    follower.chunks.append(chunk)

        follower.end = self.submit(run())

        def halt() -> None:
            follower.end.cancel()

        follower.stop = halt
        return follower

    def next_within(self, streams: Streams, stream_id: str, start: int) -> Any:
        """The next chunk from *start*; TimeoutError where a reader would wait."""
        real = cast(Twin, streams)._target

        async def step() -> Any:
            async with aclosing(real.aread(stream_id, start=start)) as reader:
                async with asyncio.timeout(SOON):
                    return await anext(reader, None)

        return self.submit(step()).result(WITHIN)

    def close(self) -> None:
        if self.company is not None:
            self.company.leave()
        self._loop.call_soon_threadsafe(self._halt.set)
        self._thread.join(WITHIN)
        assert not self._thread.is_alive(), "the async door's loop did not end"


class Twin:
    """An object whose method ``foo`` runs ``afoo`` on the door's loop."""

    def __init__(self, door: AsyncDoor, target: Any) -> None:
        self._door = door
        self._target = target

    def __getattr__(self, name: str) -> Any:
        twin = getattr(self._target, f"a{name}", None)
        if twin is None:
            return getattr(self._target, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = twin(*args, **kwargs)
            if inspect.isasyncgen(result):
                return self._steps(result)
            result = self._door.run(result)
            if isinstance(result, StreamWriter):
                return Twin(self._door, result)
            return result

        return call

    def _steps(self, reader: Any) -> Iterator[Any]:
        try:
            while (item := self._door.run(anext(reader, _END))) is not _END:
                yield item
        finally:
            self._door.run(reader.aclose())

    def __enter__(self) -> Self:
        self._door.run(self._target.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> Any:
        return self._door.run(self._target.__aexit__(kind, error, where))


Door = SyncDoor | AsyncDoor
DOORS: dict[str, Callable[[], Door]] = {"sync": SyncDoor, "async": AsyncDoor}
