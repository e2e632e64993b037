"""Streams that a measurement reads, written beforehand."""

from __future__ import annotations

from django_streams import Streams, StreamWriter, ids

from . import payload

ALIAS = "postgresql"
_TOGETHER = 250_000
"""Bytes of chunks a write; what rollup makes of smaller ones is as large."""


def store(count: int, size: int) -> str:
    """A settled stream of :func:`payload.chunks`; its id."""
    writer = _write(count, size, max(1, _TOGETHER // size))
    writer.close()
    return writer.stream_id


def store_live(count: int, size: int) -> str:
    """A live one, as a producer leaves it that appended chunk by chunk."""
    return _write(count, size, 1).stream_id


def _write(count: int, size: int, step: int) -> StreamWriter:
    chunks = payload.chunks(count, size)
    writer: StreamWriter = Streams(using=ALIAS).open(ids.new_id())
    for first in range(0, count, step):
        writer.extend(chunks[first : first + step])
    return writer
