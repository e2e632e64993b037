"""Settling with commit=: the caller's writes and the end in one transaction."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.db import IntegrityError, connections

from django_streams import Streams, StreamState

from .stores import DatabaseUnderTest
from .test_streams_settle import status_of
from .test_streams_transactions import Rollback


@pytest.fixture
def store(db_store: DatabaseUnderTest) -> DatabaseUnderTest:
    return db_store


def test_what_commit_writes_shares_the_fate_of_the_settlement(
    streams: Streams, store: DatabaseUnderTest
) -> None:
    sessions = Session.objects.using(store.alias)
    expire = "2030-01-01T00:00:00Z"
    writer = streams.open("s")
    writer.append("a")
    threads: list[bool] = []

    def archive() -> None:
        connection = connections[store.alias]
        threads.append(connection.in_atomic_block)
        # Settled already as seen from inside.
        assert store.row("s").state == "completed"
        sessions.create(session_key="s", session_data="a", expire_date=expire)

    def archive_and_fail() -> None:
        archive()
        raise Rollback

    with pytest.raises(Rollback):
        writer.close(commit=archive_and_fail)
    assert not sessions.exists()
    assert status_of(streams, "s").state is StreamState.STREAMING
    assert writer.close(commit=archive, discard=True) is True
    assert sessions.get().session_data == "a"
    assert streams.status("s") is None
    assert threads == [True, True]


def test_a_commit_that_breaks_the_transaction_settles_nothing(
    streams: Streams, store: DatabaseUnderTest
) -> None:
    """A database error inside commit leaves a live stream, not a broken handle."""
    Session.objects.using(store.alias).create(
        session_key="taken", session_data="", expire_date="2030-01-01T00:00:00Z"
    )

    def clash() -> None:
        Session.objects.using(store.alias).create(
            session_key="taken", session_data="", expire_date="2030-01-01T00:00:00Z"
        )

    def clash_by_insert() -> None:
        session = Session(
            session_key="taken", session_data="", expire_date="2030-01-01T00:00:00Z"
        )
        session.save(using=store.alias, force_insert=True)

    writer = streams.open("s")
    for broken in (clash, clash_by_insert):
        with pytest.raises(IntegrityError):
            writer.close(commit=broken)
    assert writer.append("a") == 0
    assert writer.close() is True
