"""Several processes append to one stream, follow it and settle it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connections

from django_streams import StreamClosedError, Streams, StreamState

from .brood import Brood, Job, Ready
from .logs import Log, check_whole, clear, stored

STREAM = "one"
WRITERS = ("p", "q", "r", "s")
SOON = {"PGOPTIONS": "-c synchronous_commit=off"}
"""Processes are killed and race here; nobody pulls the plug."""


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


def produce(
    ready: Ready, alias: str, name: str, seed: int, count: int
) -> dict[str, Any]:
    """Append, extend and push at random, *count* chunks or until it is closed."""
    chance = random.Random(seed)  # noqa: S311  (repeatable)
    writer = Streams(using=alias).open(STREAM)
    acknowledged: list[int] = []
    pushed: list[int] = []
    number = 0
    ready()
    try:
        while number < count:
            match chance.choice("aaaeppp"):
                case "a":
                    some = [number]
                    writer.append([name, number])
                case "e":
                    end = min(number + chance.randint(1, 4), count)
                    some = list(range(number, end))
                    writer.extend([[name, number] for number in some])
                case "p":
                    writer.push([name, number])
                    pushed.append(number)
                    number += 1
                    continue
            # What was pushed before is stored before.
            acknowledged += [*pushed, *some]
            pushed.clear()
            number = some[-1] + 1
        writer.flush()
    except StreamClosedError:
        for refused in (writer.append, writer.push):
            with pytest.raises(StreamClosedError):
                refused([name, "after the end"])
                writer.flush()
        # What was pushed may be stored or not; the call that failed was refused.
        return {"acknowledged": acknowledged, "unclear": pushed}
    return {"acknowledged": [*acknowledged, *pushed], "unclear": []}


def digest(chunks: list[Any]) -> str:
    return hashlib.sha256(json.dumps(chunks).encode()).hexdigest()


def follow(ready: Ready, alias: str) -> str:
    log: list[Any] = []
    for batch in Streams(using=alias).read_batches(
        STREAM, on_up_to_date=lambda: ready(wait=False)
    ):
        for seq, chunk in batch:
            assert seq == len(log)
            log.append(chunk)
    return digest(log)


async def afollow(ready: Ready, alias: str) -> str:
    log: list[Any] = []
    async for batch in Streams(using=alias).aread_batches(
        STREAM, on_up_to_date=lambda: ready(wait=False)
    ):
        for seq, chunk in batch:
            assert seq == len(log)
            log.append(chunk)
    return digest(log)


def settle(ready: Ready, alias: str, at: int) -> None:
    """Close the stream once it holds *at* chunks."""
    streams = Streams(using=alias)
    writer = streams.open(STREAM)
    ready()
    for chunk in streams.read(STREAM):
        if chunk.seq >= at - 1:
            break
    assert writer.close() is True


# --- and what comes of it -----------------------------------------------------


def race(alias: str, brood: Brood, seed: int, count: int, settle_at: int) -> Log:
    """Four writers, three readers, and who settles at a cursor; what is stored."""
    Streams(using=alias).open(STREAM)
    writers: list[Job] = [
        (produce, {"alias": alias, "name": name, "seed": seed + i, "count": count})
        for i, name in enumerate(WRITERS)
    ]
    readers: list[Job] = [(f, {"alias": alias}) for f in (follow, afollow, afollow)]
    said = brood.run(*writers, *readers, (settle, {"alias": alias, "at": settle_at}))
    log = stored(alias, STREAM)
    assert log is not None
    assert log.state is StreamState.COMPLETED
    assert said[4:7] == [digest(log.chunks)] * 3
    written = dict(zip(WRITERS, said, strict=False))
    check_whole(
        log.chunks,
        {name: written[name]["acknowledged"] for name in WRITERS},
        {name: set(written[name]["unclear"]) for name in WRITERS},
    )
    return log


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_log_that_is_settled_amid_its_writers_is_whole_and_over(
    alias: str, brood: Brood, seed: int
) -> None:
    at = random.Random(seed).randint(50, 800)  # noqa: S311
    log = race(alias, brood, seed * 10, 100_000, at)
    assert at <= len(log.chunks) < 10_000


def test_thousands_of_appends_from_several_processes_are_all_there_once(
    alias: str, brood: Brood
) -> None:
    count = 2500 if alias == "postgresql" else 1000
    log = race(alias, brood, 7, count, len(WRITERS) * count)
    assert len(log.chunks) == len(WRITERS) * count
