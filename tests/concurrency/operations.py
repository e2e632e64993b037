"""The writes of a producer and of the sweepers, as work that can fail anywhere.

Each operation is a generator: it prepares, yields, and then does the one thing
that a test watches or breaks. ``may_be`` says what a stop in the middle may
leave behind, ``done`` what there is when all went well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User

from django_streams import Streams, StreamState, StreamWriter
from django_streams.gc import collect

from .logs import Log, stored

LIVE, COMPLETED, ERRORED = (
    StreamState.STREAMING,
    StreamState.COMPLETED,
    StreamState.ERRORED,
)
SETTINGS = {"BLOCK_BYTES": 64, "POLL_MAX": 0.2, "CHANNEL_LAYER": None}
"""Blocks so small that a few chunks make several."""

MANY = list(range(3, 60))
"""Chunks that take several blocks."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is stored: the stream, another one beside it, a row of ``commit``."""

    log: Log | None
    other: Log | None = None
    effect: bool = False


def look(alias: str, stream_id: str) -> Found:
    return Found(
        stored(alias, stream_id),
        stored(alias, f"{stream_id} other"),
        User.objects.using(alias).filter(username=stream_id).exists(),
    )


@dataclass(frozen=True, slots=True)
class Operation:
    run: Callable[[str, str], Iterator[None]]
    done: Found
    may_be: Callable[[Found], bool]


def _begin(alias: str, stream_id: str, count: int = 3) -> StreamWriter:
    writer = Streams(using=alias).open(stream_id)
    for number in range(count):
        writer.append(number)
    return writer


def _live(*chunks: Any) -> Found:
    return Found(Log(LIVE, [0, 1, 2, *chunks]))


def _either(*found: Found) -> Callable[[Found], bool]:
    return lambda what: what in found


def open_new(alias: str, stream_id: str) -> Iterator[None]:
    yield
    Streams(using=alias).open(stream_id, metadata={"a": 1}, tag="t", lease=60)


def take_over(alias: str, stream_id: str) -> Iterator[None]:
    _begin(alias, stream_id)
    yield
    Streams(using=alias).open(stream_id, takeover=True, lease=60)


def append(alias: str, stream_id: str) -> Iterator[None]:
    writer = _begin(alias, stream_id)
    yield
    assert writer.append(3) == 3


def append_elsewhere(alias: str, stream_id: str) -> Iterator[None]:
    """Another writer was faster: the position must be adopted."""
    writer = _begin(alias, stream_id)
    Streams(using=alias).open(stream_id).append("theirs")
    yield
    assert writer.append(4) == 4


def extend(alias: str, stream_id: str) -> Iterator[None]:
    writer = _begin(alias, stream_id)
    yield
    assert writer.extend(MANY) == 3


def push(alias: str, stream_id: str) -> Iterator[None]:
    writer = _begin(alias, stream_id)
    yield
    for number in MANY[:25]:
        writer.push(number)
    writer.flush()


def _is_pushed(found: Found) -> bool:
    log = found.log
    return (
        log is not None
        and log.state is LIVE
        and len(log.chunks) >= 3
        and log.chunks == list(range(len(log.chunks)))
    )


def close(alias: str, stream_id: str) -> Iterator[None]:
    """Settles, and then merges what was left in small blocks."""
    writer = _begin(alias, stream_id, 30)
    yield
    assert writer.close() is True


def close_with(discard: bool) -> Callable[[str, str], Iterator[None]]:
    def run(alias: str, stream_id: str) -> Iterator[None]:
        writer = _begin(alias, stream_id)

        def commit() -> None:
            User.objects.using(alias).create(username=stream_id)

        yield
        assert writer.close(commit=commit, discard=discard) is True

    return run


def fail(alias: str, stream_id: str) -> Iterator[None]:
    writer = _begin(alias, stream_id)
    yield
    assert writer.error("reason") is True


def delete(alias: str, stream_id: str) -> Iterator[None]:
    _begin(alias, stream_id).close()
    yield
    Streams(using=alias).delete(stream_id)


def sweep(alias: str, stream_id: str) -> Iterator[None]:
    """One stream is abandoned, the other was settled long ago."""
    _begin(alias, stream_id)
    _begin(alias, f"{stream_id} other").close()
    yield
    sweep_all(alias)


def sweep_all(alias: str) -> None:
    """Run gc as often as it takes: by SQLite's clock, "ago" is a millisecond."""
    while Streams(using=alias).list():
        collect(using=alias, stale=0.0, completed=0.0)


def _is_swept(found: Found) -> bool:
    return found.log in (Log(LIVE, [0, 1, 2]), Log(ERRORED, [0, 1, 2]), None) and (
        found.other in (Log(COMPLETED, [0, 1, 2]), None)
    )


_SETTLED = Found(Log(COMPLETED, [0, 1, 2]))

OPERATIONS = {
    "open": Operation(
        open_new, Found(Log(LIVE, [])), _either(Found(None), Found(Log(LIVE, [])))
    ),
    "takeover": Operation(take_over, _live(), _either(_live())),
    "append": Operation(append, _live(3), _either(_live(), _live(3))),
    "append elsewhere": Operation(
        append_elsewhere,
        _live("theirs", 4),
        _either(_live("theirs"), _live("theirs", 4)),
    ),
    "extend": Operation(extend, _live(*MANY), _either(_live(), _live(*MANY))),
    "push": Operation(push, _live(*MANY[:25]), _is_pushed),
    "close": Operation(
        close,
        Found(Log(COMPLETED, list(range(30)))),
        _either(
            Found(Log(LIVE, list(range(30)))), Found(Log(COMPLETED, list(range(30))))
        ),
    ),
    "close with commit": Operation(
        close_with(discard=False),
        Found(Log(COMPLETED, [0, 1, 2]), effect=True),
        _either(_live(), Found(Log(COMPLETED, [0, 1, 2]), effect=True)),
    ),
    "close with discard": Operation(
        close_with(discard=True),
        Found(None, effect=True),
        _either(_live(), Found(None, effect=True)),
    ),
    "error": Operation(
        fail,
        Found(Log(ERRORED, [0, 1, 2])),
        _either(_live(), Found(Log(ERRORED, [0, 1, 2]))),
    ),
    "delete": Operation(delete, Found(None), _either(_SETTLED, Found(None))),
    "sweep": Operation(sweep, Found(None), _is_swept),
}
