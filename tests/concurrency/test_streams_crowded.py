"""Two processes write to the same streams in any order, some rows being held.

Group commit takes many rows in one transaction. Without its rules (one entry a
stream in a batch, rows in the order of ids, a row that is held left out) this
load loses chunks, deadlocks, or stands still.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from django_streams import Streams, StreamState, StreamWriter
from django_streams.gc import collect

from .brood import Brood, Job, Ready
from .logs import clear, stored

NAMES = ("p", "q")
HANDLES = 2
"""Of each process on each stream: what could meet in one batch."""

STREAMS = 44
COUNT = 12
"""Chunks of each handle on each stream."""

HOLDS = 6
HELD = 5
"""Rows that a transaction holds at a time."""

AHEAD = 8
"""Appends elsewhere that a holder waits for before it lets go."""

STALLED = 10.0
"""Seconds after which a holder takes it that nobody goes on beside it."""

LOCAL = {"CHANNEL_LAYER": None, "ROLLUP_AFTER": 0.0}
SOON = {"PGOPTIONS": "-c synchronous_commit=off"}
"""Processes race here; nobody pulls the plug."""


@pytest.fixture(params=["default", "postgresql", "mariadb"])
def alias(
    request: pytest.FixtureRequest, real_db: Callable[[str], str]
) -> Iterator[str]:
    yield real_db(request.param)
    connections.close_all()
    clear(request.param)


@pytest.fixture(scope="module")
def brood() -> Iterator[Brood]:
    with Brood(env=SOON) as brood:
        yield brood


# --- what the children do -----------------------------------------------------


class Notes(logging.Handler):
    """What the committer had to say: a batch that failed is a deadlock's mark."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Holder(threading.Thread):
    """Appends to some streams in one long transaction, again and again."""

    def __init__(self, alias: str, name: str, seed: int, free: list[int]) -> None:
        super().__init__()
        self._alias, self._name, self._free = alias, name, free
        self._chance = random.Random(seed)  # noqa: S311  (repeatable)
        self.held: dict[str, list[int]] = {}
        self.stalled = 0
        self.error: str | None = None
        self._news = threading.Condition()

    def told(self) -> None:
        with self._news:
            self._news.notify()

    def run(self) -> None:
        try:
            streams = Streams(using=self._alias)
            for number in range(HOLDS):
                # Two such transactions deadlock unless both go by the same order.
                some = sorted(self._chance.sample(range(STREAMS), HELD))
                writers = [streams.open(f"s{one}") for one in some]
                with transaction.atomic(using=self._alias):
                    for one, writer in zip(some, writers, strict=True):
                        writer.append([f"{self._name}h", number])
                        self.held.setdefault(f"s{one}", []).append(number)
                    # On SQLite it is the database that is held.
                    if self._alias != "default" and not self.stalled:
                        self._wait_for_others()
        except BaseException as error:
            self.error = repr(error)
        finally:
            connections.close_all()

    def _wait_for_others(self) -> None:
        until = len(self._free) + AHEAD
        with self._news:
            if not self._news.wait_for(lambda: len(self._free) >= until, STALLED):
                self.stalled += 1


async def crowd(ready: Ready, alias: str, name: str, seed: int) -> dict[str, Any]:
    """Append everywhere at once, in an order of its own; then settle everything."""
    notes = Notes()
    logger = logging.getLogger("django_streams.commit")
    logger.addHandler(notes)
    logger.setLevel(logging.INFO)
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        chance = random.Random(seed)  # noqa: S311  (repeatable)
        ids = [f"s{number}" for number in range(STREAMS)]
        handles = [
            (f"{name}{handle}", await streams.aopen(stream_id))
            for handle in range(HANDLES)
            for stream_id in ids
        ]
        chance.shuffle(handles)
        alone = await streams.aopen(f"{name} alone")
        free: list[int] = []
        holder = Holder(alias, name, seed, free)
        ready()
        holder.start()

        async def fill(who: str, writer: StreamWriter) -> None:
            for number in range(COUNT):
                if number % 4 == 3:
                    await writer.apush([who, number])
                else:
                    await writer.aappend([who, number])
            await writer.aflush()

        async def go_on() -> None:
            while holder.is_alive():
                free.append(await alone.aappend(len(free)))
                holder.told()

        async def come_and_go() -> None:
            for number in range(10):
                writer = await streams.aopen(f"{name} short {number}")
                await writer.aextend([number] * 3)
                await writer.aclose(discard=number % 2 == 0)

        await asyncio.gather(
            go_on(), come_and_go(), *(fill(who, writer) for who, writer in handles)
        )
        await asyncio.to_thread(holder.join)
        await streams.aopen(f"over {name}")
        for other in NAMES:
            while await streams.astatus(f"over {other}") is None:
                await asyncio.sleep(0.02)
        chance.shuffle(handles)
        done = await asyncio.gather(*(writer.aclose() for _, writer in handles))
        first = [w.stream_id for (_, w), was in zip(handles, done, strict=True) if was]
        return {
            "settled": first,
            "held": holder.held,
            "stalled": holder.stalled,
            "error": holder.error,
            "notes": notes.said,
            "alone": free == list(range(len(free))),
        }


def sweep(ready: Ready, alias: str) -> int:
    """Delete and merge all the time; how many blocks were merged."""
    merged = 0
    with override_settings(DJANGO_STREAMS=LOCAL):
        streams = Streams(using=alias)
        ready()
        while any(streams.status(f"over {name}") is None for name in NAMES):
            merged += collect(using=alias, stale=3600.0, completed=0.0).merged
    return merged


# --- and what comes of it -----------------------------------------------------


def test_nothing_is_lost_doubled_refused_or_held_up(alias: str, brood: Brood) -> None:
    for number in range(STREAMS):
        Streams(using=alias).open(f"s{number}")
    crowds: list[Job] = [
        (crowd, {"alias": alias, "name": name, "seed": place})
        for place, name in enumerate(NAMES)
    ]
    *said, merged = brood.run(*crowds, (sweep, {"alias": alias}))
    for one in said:
        assert one["error"] is None
        assert one["notes"] == [], "a batch failed"
        assert one["stalled"] == 0, "others waited for the rows that were held"
        assert one["alone"]
    settled = [stream_id for one in said for stream_id in one["settled"]]
    assert sorted(settled) == sorted(f"s{number}" for number in range(STREAMS))
    for number in range(STREAMS):
        stream_id = f"s{number}"
        log = stored(alias, stream_id)
        assert log is not None
        assert log.state is StreamState.COMPLETED
        seen: dict[str, list[int]] = {}
        for who, chunk in log.chunks:
            seen.setdefault(who, []).append(chunk)
        expected = {
            f"{name}{handle}": list(range(COUNT))
            for name in NAMES
            for handle in range(HANDLES)
        }
        for name, one in zip(NAMES, said, strict=True):
            if held := one["held"].get(stream_id):
                expected[f"{name}h"] = held
        assert seen == expected
    assert merged > 0
