"""Keeping writers of a database store waiting, as a long transaction does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from django_streams.ids import stream_key
from django_streams.models import Stream

from .stores import DatabaseUnderTest
from .waiting import WITHIN, in_thread


@contextmanager
def writes_held(store: DatabaseUnderTest, *stream_ids: str) -> Iterator[None]:
    """Another connection holds the streams' rows until the block ends.

    On SQLite it holds the database's write lock, which comes to the same.
    """
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic(using=store.alias):
            rows = Stream.objects.using(store.alias).select_for_update()
            keys = [stream_key(stream_id) for stream_id in stream_ids]
            assert len(rows.filter(key__in=keys).order_by("pk")) == len(keys)
            held.set()
            assert release.wait(2 * WITHIN)

    holder = in_thread(hold)
    assert held.wait(WITHIN)
    try:
        yield
    finally:
        release.set()
        holder.result(WITHIN)
