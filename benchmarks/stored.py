"""Streams that a measurement reads, written beforehand."""

from __future__ import annotations

from django_streams import Streams, StreamWriter, ids

from . import payload

ALIAS = "postgresql"
_TOGETHER = 250_000
"""Bytes of chunks a write; what rollup makes of smaller ones is as large."""


def store(count: int, size: int, *, settle: bool = True) -> str:
    """A stream of :func:`payload.chunks`; its id."""
    chunks = payload.chunks(count, size)
    writer: StreamWriter = Streams(using=ALIAS).open(ids.new_id())
    step = max(1, _TOGETHER // size)
    for first in range(0, count, step):
        writer.extend(chunks[first : first + step])
    if settle:
        writer.close()
    return writer.stream_id
