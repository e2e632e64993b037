"""PostgreSQL connections cut on the wire, at random and at the worst moments."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import override_settings

from django_streams import Streams, StreamWriter
from django_streams.exceptions import StreamUnavailableError
from tests import process
from tests.process import Child

from .logs import Log, check_whole, clear, stored
from .operations import COMPLETED
from .proxy import Cut, PostgresProxy

pytestmark = pytest.mark.needs("postgresql")

STREAM = "one"
APPENDS = 420
"""Acknowledged appends of each of two writers."""

MANY, EACH = 8, 60
"""Streams of a process that appends to many, and appends to each."""

PATIENCE = 45.0
"""Seconds for what takes three on a machine that has nothing else to do."""

LATE_BY = 0.05
"""Seconds after which statements that are late arrive."""

SETTINGS = {"CHANNEL_LAYER": None}
IMPATIENT = {**SETTINGS, "RETRY_SECONDS": 0.0}
"""Each unclear failure reaches the caller, who is to call again."""


@pytest.fixture(autouse=True)
def database(postgresql_db: str) -> Iterator[None]:
    yield
    clear(postgresql_db)


@pytest.fixture
def proxy(database: None) -> Iterator[PostgresProxy]:
    with PostgresProxy() as proxy:
        yield proxy


def appends(sql: str) -> bool:
    """Also those of several streams in one statement."""
    return sql.startswith("WITH") and "INSERT INTO" in sql


def only_the(number: int, cut: Cut, what: Callable[[str], bool]) -> Callable[..., Any]:
    """Cut at the nth of the statements that *what* names, once."""
    seen = 0

    def rule(sql: str) -> Cut | None:
        nonlocal seen
        seen += what(sql)
        return cut if what(sql) and seen == number else None

    return rule


# --- what the children do -----------------------------------------------------


def produce(
    name: str, count: int, seed: int, settings: dict[str, Any], gives_up: float
) -> None:
    """Append until *count* are acknowledged, through unclear failures.

    Called again with the same chunk, or, as often as *gives_up* says, the fate
    of that chunk is left open and the next one follows.
    """
    chance = random.Random(seed)  # noqa: S311  (repeatable)
    acknowledged: list[tuple[int, int]] = []
    unclear: list[int] = []
    number = 0
    with override_settings(DJANGO_STREAMS=settings):
        writer = Streams(using="postgresql").open(STREAM)
        process.say("open")
        process.hear()
        while len(acknowledged) < count:
            try:
                seq = writer.append([name, number])
            except StreamUnavailableError:
                if chance.random() < gives_up:
                    unclear.append(number)
                    number += 1
                continue
            acknowledged.append((seq, number))
            number += 1
    process.say({"acknowledged": acknowledged, "unclear": unclear})


async def produce_async(name: str, count: int, seed: int) -> None:
    """Appends and pushes at random; the position of a push is not told."""
    chance = random.Random(seed)  # noqa: S311  (repeatable)
    positions: list[tuple[int, int]] = []
    with override_settings(DJANGO_STREAMS=SETTINGS):
        writer = await Streams(using="postgresql").aopen(STREAM, lease=60)
        process.say("open")
        process.hear()
        for number in range(count):
            if chance.random() < 0.4:
                positions.append((await writer.aappend([name, number]), number))
            else:
                await writer.apush([name, number])
        await writer.aflush()
    process.say(positions)


async def produce_many(name: str, count: int) -> None:
    """A writer for each of several streams, all at once."""
    with override_settings(DJANGO_STREAMS=SETTINGS):
        streams = Streams(using="postgresql")
        writers = [await streams.aopen(f"{STREAM} {n}") for n in range(MANY)]
        process.say("open")
        process.hear()

        async def fill(writer: StreamWriter) -> list[int]:
            return [await writer.aappend([name, number]) for number in range(count)]

        process.say(await asyncio.gather(*map(fill, writers)))


def do_as_told(settings: dict[str, Any]) -> None:
    """Call the writer's methods that the parent names, and say what they return."""

    def commit() -> None:
        User.objects.using("postgresql").create(username="effect")

    with override_settings(DJANGO_STREAMS=settings):
        writer = Streams(using="postgresql").open(STREAM)
        process.say("open")
        while True:
            match process.hear():
                case ["append", chunk]:
                    call: Callable[[], object] = partial(writer.append, chunk)
                case ["close", discard]:
                    call = partial(writer.close, commit=commit, discard=discard)
            try:
                process.say(call())
            except StreamUnavailableError:
                process.say("unavailable")


# --- at random ----------------------------------------------------------------


class Mishaps:
    """Cuts writes at random, and lets those that are late arrive soon."""

    def __init__(self, proxy: PostgresProxy, seed: int) -> None:
        self._proxy = proxy
        self._chance = random.Random(seed)  # noqa: S311  (repeatable)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._release)

    def _rule(self, sql: str) -> Cut | None:
        # An append may take one statement, or five and a commit.
        if sql == "COMMIT" or appends(sql):
            chances = {Cut.AFTER: 0.1, Cut.BEFORE: 0.03, Cut.LATE: 0.03}
        elif "django_streams_" in sql:
            chances = {Cut.AFTER: 0.01, Cut.BEFORE: 0.01}
        else:
            return None
        return next(
            (cut for cut, at in chances.items() if self._chance.random() < at), None
        )

    def _release(self) -> None:
        while not self._over.wait(LATE_BY):
            self._proxy.release(wait=False)

    def __enter__(self) -> None:
        self._proxy.rule = self._rule
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._proxy.rule = lambda sql: None
        self._over.set()
        self._thread.join()
        for cut in Cut:
            assert self._proxy.count(cut) > 5


@pytest.mark.parametrize(
    ("settings", "gives_up"),
    [(SETTINGS, 0.0), (IMPATIENT, 0.0), (IMPATIENT, 0.3)],
    ids=["the library retries", "the callers retry", "callers give up"],
)
def test_two_writers_without_a_fence_lose_and_double_nothing(
    proxy: PostgresProxy, settings: dict[str, Any], gives_up: float
) -> None:
    names = ("p", "q")
    job = {"settings": settings, "count": APPENDS, "gives_up": gives_up}
    with (
        Child(produce, env=proxy.env, name="p", seed=1, **job) as p,
        Child(produce, env=proxy.env, name="q", seed=2, **job) as q,
    ):
        children = (p, q)
        for child in children:
            assert child.hear() == "open"
        with Mishaps(proxy, seed=3):
            for child in children:
                child.say("go")
            said = dict(
                zip(names, [child.hear(PATIENCE) for child in children], strict=True)
            )
    log = stored("postgresql", STREAM)
    assert log is not None
    for name in names:
        for seq, number in said[name]["acknowledged"]:
            assert log.chunks[seq] == [name, number], "told the wrong position"
    check_whole(
        log.chunks,
        {n: [number for _, number in said[n]["acknowledged"]] for n in names},
        {n: set(said[n]["unclear"]) for n in names},
    )


def test_async_writers_lose_and_double_nothing_either(proxy: PostgresProxy) -> None:
    names = ("p", "q")
    with (
        Child(produce_async, env=proxy.env, name="p", count=APPENDS, seed=1) as p,
        Child(produce_async, env=proxy.env, name="q", count=APPENDS, seed=2) as q,
    ):
        for child in (p, q):
            assert child.hear() == "open"
        with Mishaps(proxy, seed=3):
            for child in (p, q):
                child.say("go")
            said = dict(
                zip(names, [child.hear(PATIENCE) for child in (p, q)], strict=True)
            )
    log = stored("postgresql", STREAM)
    assert log is not None
    for name in names:
        for seq, number in said[name]:
            assert log.chunks[seq] == [name, number], "told the wrong position"
    everything = list(range(APPENDS))
    check_whole(log.chunks, dict.fromkeys(names, everything), {})


def test_what_is_committed_together_is_found_out_one_by_one(
    proxy: PostgresProxy,
) -> None:
    """Two processes, each with the appends of many streams in one statement."""
    names = ("p", "q")
    with (
        Child(produce_many, env=proxy.env, name="p", count=EACH) as p,
        Child(produce_many, env=proxy.env, name="q", count=EACH) as q,
    ):
        for child in (p, q):
            assert child.hear() == "open"
        with Mishaps(proxy, seed=4):
            for child in (p, q):
                child.say("go")
            heard = [child.hear(PATIENCE) for child in (p, q)]
    assert any("unnest" in sql for _, sql in proxy.cuts)
    for place in range(MANY):
        log = stored("postgresql", f"{STREAM} {place}")
        assert log is not None
        for name, seqs in zip(names, heard, strict=True):
            for number, seq in enumerate(seqs[place]):
                assert log.chunks[seq] == [name, number], "told the wrong position"
        everything = list(range(EACH))
        check_whole(log.chunks, dict.fromkeys(names, everything), {})


# --- at the worst moments -----------------------------------------------------


@pytest.fixture
def impatient(proxy: PostgresProxy) -> Iterator[Child]:
    with Child(do_as_told, env=proxy.env, settings=IMPATIENT) as child:
        assert child.hear() == "open"
        yield child


@pytest.fixture
def patient(proxy: PostgresProxy) -> Iterator[Child]:
    with Child(do_as_told, env=proxy.env, settings=SETTINGS) as child:
        assert child.hear() == "open"
        yield child


def asked(child: Child, *words: Any) -> Any:
    child.say(words)
    return child.hear()


@pytest.mark.parametrize("cut", Cut)
def test_an_append_whose_answer_is_lost_is_stored_once(
    proxy: PostgresProxy, patient: Child, cut: Cut
) -> None:
    """And returns the position at which it is stored."""
    assert asked(patient, "append", "a") == 0
    proxy.rule = only_the(1, cut, appends)
    assert asked(patient, "append", "b") == 1
    proxy.release()
    assert asked(patient, "append", "c") == 2
    assert [how for how, _ in proxy.cuts] == [cut]
    log = stored("postgresql", STREAM)
    assert log is not None
    assert log.chunks == ["a", "b", "c"]


def test_an_append_that_had_to_go_elsewhere_is_stored_once(
    proxy: PostgresProxy, patient: Child
) -> None:
    """Another writer was faster, and the answer of the second try is lost."""
    Streams(using="postgresql").open(STREAM).append("theirs")
    proxy.rule = only_the(1, Cut.AFTER, lambda sql: sql == "COMMIT")
    assert asked(patient, "append", "mine") == 1
    assert [how for how, _ in proxy.cuts] == [Cut.AFTER]
    log = stored("postgresql", STREAM)
    assert log is not None
    assert log.chunks == ["theirs", "mine"]


def test_a_chunk_given_up_that_arrives_late_is_not_taken_for_its_successor(
    proxy: PostgresProxy, impatient: Child
) -> None:
    """Both have the same place in the log, and the same writer."""

    def rule(sql: str) -> Cut | None:
        if not appends(sql):
            return None
        if '"given up"' in sql:
            return Cut.LATE
        if proxy.count(Cut.BEFORE):
            return None
        proxy.release()
        return Cut.BEFORE

    proxy.rule = rule
    assert asked(impatient, "append", "given up") == "unavailable"
    assert asked(impatient, "append", "next") == "unavailable"
    assert asked(impatient, "append", "next") == 1
    log = stored("postgresql", STREAM)
    assert log is not None
    assert log.chunks == ["given up", "next"]


@pytest.mark.parametrize("discard", [False, True])
@pytest.mark.parametrize("cut", Cut)
def test_a_settlement_whose_commit_is_cut_has_its_effect_once(
    proxy: PostgresProxy, patient: Child, cut: Cut, discard: bool
) -> None:
    """Also when the lost call commits while its retry already asks."""
    release = threading.Timer(LATE_BY, proxy.release)

    def rule(sql: str) -> Cut | None:
        if sql != "COMMIT" or proxy.cuts:
            return None
        release.start()
        return cut

    assert asked(patient, "append", "a") == 0
    proxy.rule = rule
    assert asked(patient, "close", discard) is True
    release.join()
    assert [how for how, _ in proxy.cuts] == [cut]
    assert asked(patient, "close", discard) is False
    assert User.objects.using("postgresql").filter(username="effect").count() == 1
    left = None if discard else Log(COMPLETED, ["a"])
    assert stored("postgresql", STREAM) == left
