"""A stream as its rows hold it, after checking that they agree."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.db import transaction

from django_streams import StreamState
from django_streams.codec import decode, split
from django_streams.ids import stream_key
from django_streams.models import ChunkBlock, Stream


@dataclass(frozen=True, slots=True)
class Log:
    state: StreamState
    chunks: list[Any]


def stored(alias: str, stream_id: str) -> Log | None:
    """What is stored of a stream, None without it; fails for a broken log."""
    row = Stream.objects.using(alias).filter(key=stream_key(stream_id)).first()
    if row is None:
        return None
    chunks: list[Any] = []
    blocks = ChunkBlock.objects.using(alias).filter(stream=row)
    for block in blocks.order_by("seq_from"):
        assert block.seq_from == len(chunks), "a hole, or two blocks for one seq"
        texts = split(bytes(block.body).decode())
        assert len(texts) == block.count
        chunks += map(decode, texts)
    assert row.cursor == len(chunks)
    state = StreamState(row.state)
    assert (row.closed_at is not None) == state.settled
    return Log(state, chunks)


def clear(alias: str) -> None:
    """Delete all streams, though blocks may still be merged in the background."""
    with transaction.atomic(using=alias):
        # A merge locks its stream first, so none can come in between.
        rows = Stream.objects.using(alias).select_for_update()
        pks = [row.pk for row in rows.order_by("pk")]
        ChunkBlock.objects.using(alias).filter(stream__in=pks).delete()
        Stream.objects.using(alias).filter(pk__in=pks).delete()


def check_whole(
    log: Iterable[Any], acknowledged: dict[str, list[int]], unclear: dict[str, set[int]]
) -> None:
    """Each writer's chunks ``[name, number]`` are there once and in its order.

    *acknowledged* must be there; *unclear*, whose fate its writer was never
    told, may be.
    """
    seen: dict[str, list[int]] = {name: [] for name in acknowledged}
    for name, number in log:
        seen[name].append(number)
    for name, numbers in seen.items():
        assert all(a < b for a, b in pairwise(numbers)), name
        there = set(numbers)
        lost = set(acknowledged[name]) - there
        assert not lost, f"{name} lost {sorted(lost)}"
        foreign = there - set(acknowledged[name]) - unclear.get(name, set())
        assert not foreign, f"{name} stored {sorted(foreign)} against its word"
