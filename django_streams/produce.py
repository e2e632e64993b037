"""Producers that run in the background of this process."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Iterable
from contextlib import suppress
from typing import Any

from asgiref.sync import AsyncToSync, async_to_sync
from django.db import connections

from .exceptions import StreamCancelledError, StreamsError
from .types import Json
from .writer import StreamWriter

logger = logging.getLogger("django_streams.produce")

# The loop holds its tasks weakly; these would otherwise vanish in mid-reply.
_tasks: set[asyncio.Task[None]] = set()


def check_producer(chunks: object) -> None:
    """Raise ``TypeError`` unless *chunks* can be iterated, sync or async."""
    text = isinstance(chunks, (str, bytes, bytearray))
    if text or not isinstance(chunks, (Iterable, AsyncIterable)):
        raise TypeError(
            "produce() takes an iterable or async iterable of chunks, not "
            f"{type(chunks).__name__}; call a generator function first, and put a "
            "single text into a list"
        )


def start_producer(
    writer: StreamWriter,
    chunks: Iterable[Json] | AsyncIterable[Json],
    *,
    on_this_loop: bool,
) -> None:
    """Push everything *chunks* yields to *writer* and settle it; returns at once.

    A sync iterable gets a thread. An async one runs as a task on the running
    loop, unless that loop ends with the current call (``async_to_sync``, the
    sync test client): then, and without a loop, on the process's own.

    Where another thread could not see the caller's rows (SINGLE_CONNECTION)
    everything stays with the caller: a task on its loop, or, without one, the
    whole production before this returns.
    """
    if not writer.background:
        if on_this_loop:
            _spawn(_pump_async(writer, _one_by_one(chunks)))
        elif isinstance(chunks, AsyncIterable):
            async_to_sync(_pump_async)(writer, chunks)
        else:
            _pump(writer, chunks)
    elif isinstance(chunks, AsyncIterable):
        work = _pump_async(writer, chunks)
        if on_this_loop and getattr(AsyncToSync.executors, "current", None) is None:
            _spawn(work)
        else:
            background_loop().call_soon_threadsafe(_spawn, work)
    else:
        threading.Thread(
            target=contextvars.Context().run,
            args=(_pump_on_thread, writer, chunks),
            name="django-streams-producer",
            daemon=True,
        ).start()


async def _one_by_one(
    chunks: Iterable[Json] | AsyncIterable[Json],
) -> AsyncGenerator[Json, None]:
    """Any iterable as an async one that lets others run between its items."""
    if isinstance(chunks, AsyncIterable):
        async for chunk in chunks:
            yield chunk
    else:
        for chunk in chunks:
            yield chunk
            await asyncio.sleep(0)


def _spawn(work: Coroutine[Any, Any, None]) -> None:
    # A context of its own: the request's would tie it to the request's thread.
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _pump_async(writer: StreamWriter, chunks: AsyncIterable[Json]) -> None:
    loop = asyncio.get_running_loop()
    pump = loop.create_task(_push_all(writer, chunks))

    # A model that is silent would not notice a flag: the task is cancelled.
    def stop() -> None:
        # A loop that has ended took its producer along.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(pump.cancel)

    writer.on_cancelled(stop)
    try:
        async with writer:
            try:
                await pump
            except asyncio.CancelledError:
                # Ours, because somebody asked this producer to stop, or that of
                # the loop that ends and takes us along?
                _check_cancelled(writer)
                raise
    except Exception as error:
        _ended(writer, error)


async def _push_all(writer: StreamWriter, chunks: AsyncIterable[Json]) -> None:
    iterator = chunks.__aiter__()
    try:
        async for chunk in iterator:
            _check_cancelled(writer)
            await writer.apush(chunk)
    finally:
        if inspect.isasyncgen(iterator):
            await iterator.aclose()


def _pump(writer: StreamWriter, chunks: Iterable[Json]) -> None:
    iterator = iter(chunks)
    try:
        with writer:
            for chunk in iterator:
                _check_cancelled(writer)
                writer.push(chunk)
    except Exception as error:
        _ended(writer, error)
    finally:
        if inspect.isgenerator(iterator):
            iterator.close()


def _pump_on_thread(writer: StreamWriter, chunks: Iterable[Json]) -> None:
    try:
        _pump(writer, chunks)
    finally:
        connections.close_all()


def _check_cancelled(writer: StreamWriter) -> None:
    if writer.cancelled:
        raise StreamCancelledError(
            f'the producer of stream "{writer.stream_id}" was asked to stop',
            stream_id=writer.stream_id,
        )


def _ended(writer: StreamWriter, error: Exception) -> None:
    """The writer has settled the stream and logged what is not ours."""
    if isinstance(error, StreamsError):
        logger.info("producer of %r ended: %s", writer.stream_id, error)


_loop: asyncio.AbstractEventLoop | None = None
_loop_lock = threading.Lock()


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's own loop, on a daemon thread, made at first use."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(
                target=_loop.run_forever, name="django-streams-loop", daemon=True
            ).start()
        return _loop


def _forget() -> None:
    global _loop, _loop_lock
    _loop = None
    _loop_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
