"""Two doors to one truth: which call belongs where, and that both are alike."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import typing
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction

import django_streams
from django_streams import Streams, StreamWriter
from django_streams.exceptions import StreamUsageError

from .stores import DatabaseUnderTest, StoreUnderTest
from .test_streams_append import stored
from .waiting import outside


def public(kind: type) -> dict[str, Any]:
    return {
        name: member
        for name, member in inspect.getmembers(kind)
        if not name.startswith("_") and callable(member)
    }


def pairs(kind: type) -> dict[str, tuple[Any, Any]]:
    members = public(kind)
    return {
        name: (member, members[f"a{name}"])
        for name, member in members.items()
        if f"a{name}" in members
    }


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            Streams,
            "open read read_batches status list delete cancel produce owner_of",
        ),
        (StreamWriter, "append extend push flush drop close error renew"),
    ],
)
def test_every_public_method_has_both_doors(kind: type, names: str) -> None:
    found = pairs(kind)
    assert set(found) == set(names.split())
    alone = set(public(kind)) - set(found) - {f"a{name}" for name in found}
    # They do no I/O, so one door is enough.
    assert alone <= {"on_cancelled", "follower", "hurry"}


SYNC_ONLY = {"read": {"stop", "timeout"}}
"""A sync reader is stopped by an event, an async one is cancelled."""


@pytest.mark.parametrize("kind", [Streams, StreamWriter])
def test_twins_take_the_same_arguments(kind: type) -> None:
    for name, (sync, twin) in pairs(kind).items():
        mine = dict(inspect.signature(sync).parameters)
        theirs = dict(inspect.signature(twin).parameters)
        for extra in SYNC_ONLY.get(name, ()):
            assert extra in mine
            del mine[extra]
        assert list(mine) == list(theirs), name
        for parameter in mine:
            assert mine[parameter].kind == theirs[parameter].kind, name
            assert mine[parameter].default == theirs[parameter].default, name


@pytest.mark.parametrize("kind", [Streams, StreamWriter])
def test_twins_are_awaited_or_iterated_and_documented(kind: type) -> None:
    for name, (sync, twin) in pairs(kind).items():
        assert inspect.getdoc(sync), name
        assert inspect.getdoc(twin), f"a{name}"
        if name in {"read", "read_batches"}:
            assert inspect.isasyncgenfunction(inspect.unwrap(twin)), name
        else:
            assert inspect.iscoroutinefunction(twin), name
        assert not inspect.iscoroutinefunction(sync), name
        assert typing.get_type_hints(sync).get("return") is not None, name


WRITES: dict[str, Callable[[StreamWriter], Any]] = {
    "append": lambda w: w.append("x"),
    "extend": lambda w: w.extend(["x"]),
    "push": lambda w: w.push("x"),
    "flush": lambda w: w.flush(),
    "drop": lambda w: w.drop(),
    "renew": lambda w: w.renew(),
    "close": lambda w: w.close(),
    "error": lambda w: w.error("x"),
}
CALLS: dict[str, Callable[[Streams], Any]] = {
    "open": lambda s: s.open("new"),
    "read": lambda s: next(s.read("s")),
    "read_batches": lambda s: next(s.read_batches("s")),
    "status": lambda s: s.status("s"),
    "list": lambda s: s.list(),
    "delete": lambda s: s.delete("s"),
    "cancel": lambda s: s.cancel("s"),
    "produce": lambda s: s.produce("new", ["x"]),
    "owner_of": lambda s: s.owner_of("s"),
}


async def test_a_sync_call_on_a_running_loop_names_its_twin(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await streams.aopen("s", lease=30)
    await writer.aappend("a")
    attempts: dict[str, Callable[[], Any]] = {
        **{name: partial(call, streams) for name, call in CALLS.items()},
        **{name: partial(call, writer) for name, call in WRITES.items()},
    }
    for name, attempt in attempts.items():
        with pytest.raises(StreamUsageError) as caught:
            attempt()
        assert caught.value.code == "usage", name
        assert f"a{name}(" in str(caught.value), name
    # And nothing of all that took effect.
    assert await streams.astatus("new") is None
    assert await writer.aappend("b") == 1
    await writer.aclose()
    assert [c.chunk async for c in streams.aread("s")] == ["a", "b"]


async def test_a_sync_block_on_a_running_loop_names_its_twin(
    store: StoreUnderTest,
) -> None:
    writer = await store.streams().aopen("s")
    with pytest.raises(StreamUsageError, match="async with"), writer:
        raise AssertionError("never entered")
    await writer.aclose()


def test_an_async_write_inside_a_transaction_is_refused(
    db_store: DatabaseUnderTest,
) -> None:
    """It would run on another connection: outside, and perhaps deadlocked."""
    streams = db_store.streams()
    writer = streams.open("s")
    writer.append("a")
    attempts: dict[str, Callable[[], Any]] = {
        "aappend": lambda: async_to_sync(writer.aappend)("x"),
        "aextend": lambda: async_to_sync(writer.aextend)(["x"]),
        "apush": lambda: async_to_sync(writer.apush)("x"),
        "aclose": lambda: async_to_sync(writer.aclose)(),
        "aerror": lambda: async_to_sync(writer.aerror)("x"),
        "aopen": lambda: async_to_sync(streams.aopen)("new"),
    }
    for name, attempt in attempts.items():
        with transaction.atomic(using=db_store.alias):
            try:
                attempt()
            except StreamUsageError as error:
                assert error.code == "usage"
            else:
                pytest.fail(f"{name} was not refused")
            writer.append(name)
    assert stored(streams, "s") == ["a", *attempts]
    assert streams.status("new") is None


async def test_the_bridge_is_watched_also_below_a_task_that_has_written_itself(
    db_store: DatabaseUnderTest,
) -> None:
    streams = db_store.streams()
    writer = await streams.aopen("s")
    await writer.aappend("a")

    def in_a_transaction() -> None:
        with (
            transaction.atomic(using=db_store.alias),
            pytest.raises(StreamUsageError),
        ):
            async_to_sync(writer.aappend)("x")
        async_to_sync(writer.aappend)("b")

    await sync_to_async(in_a_transaction)()
    await writer.aappend("c")
    assert [c.chunk async for c in _to_the_end(streams, writer)] == ["a", "b", "c"]


async def _to_the_end(streams: Streams, writer: StreamWriter) -> Any:
    await writer.aclose()
    async for chunk in streams.aread(writer.stream_id):
        yield chunk


def test_an_async_write_through_the_bridge_outside_a_transaction_works(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = async_to_sync(streams.aopen)("s")
    assert async_to_sync(writer.aappend)("a") == 0
    assert async_to_sync(writer.aclose)() is True
    assert [c.chunk for c in streams.read("s")] == ["a"]


async def test_a_sync_call_in_a_thread_beside_the_loop_works(
    store: StoreUnderTest,
) -> None:
    streams = store.streams()
    writer = await outside(streams.open, "s")
    await asyncio.to_thread(lambda: None)
    assert await outside(writer.append, "a") == 0
    await outside(writer.close)


def test_the_public_names_are_few_sorted_and_all_there() -> None:
    names = django_streams.__all__
    assert list(names) == sorted(names)
    assert len(names) <= 20
    for name in names:
        assert getattr(django_streams, name) is not None
    promised = {
        "Streams",
        "StreamWriter",
        "StreamChunk",
        "StreamStatus",
        "StreamState",
        "sse_response",
        "StreamsError",
        "StreamNotFoundError",
        "StreamClosedError",
        "StreamConflictError",
        "StreamFencedError",
        "StreamLiveError",
        "StreamCancelledError",
        "StreamSerializationError",
    }
    assert promised <= set(names)


def test_importing_the_package_needs_no_settings_and_loads_no_models() -> None:
    code = (
        "import sys, django_streams\n"
        "assert 'django_streams.models' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env={"PATH": ""},
    )
    assert done.returncode == 0, done.stderr
