"""The suite's own databases: emptied in spite of what a test left running."""

from __future__ import annotations

import threading

import pytest
from django.db import DatabaseError, connections

from django_streams import Streams
from django_streams.models import ChunkBlock, Stream
from tests.conftest import RealDb
from tests.databases import empty

ROUNDS = 10


@pytest.mark.parametrize("name", ["default", "postgresql", "mariadb"])
def test_it_is_empty_though_a_thread_goes_on_writing(
    real_db: RealDb, name: str
) -> None:
    alias = real_db(name)
    over = threading.Event()
    begun = threading.Semaphore(0)

    def write() -> None:
        # As a merge does that was not waited for: for the stream as it was.
        try:
            while not over.is_set():
                row = Stream.objects.using(alias).first()
                if row is None:
                    continue
                begun.release()
                for seq in range(1, 1000):
                    if over.is_set():
                        break
                    try:
                        ChunkBlock.objects.using(alias).create(
                            stream_id=row.pk, seq_from=seq, count=1, body=b"1"
                        )
                    except DatabaseError:
                        break
        finally:
            connections.close_all()

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    try:
        for number in range(ROUNDS):
            Streams(using=alias).open(f"s{number}")
            for _ in writers:
                assert begun.acquire(timeout=10)
            empty(alias)
            assert not Stream.objects.using(alias).exists()
            assert not ChunkBlock.objects.using(alias).exists()
    finally:
        over.set()
        for writer in writers:
            writer.join()
