"""Who watches a conversation, counted over all processes. SQL only.

A row is a connection. Its process says every while that it is still there; one
that says nothing for ``PRESENCE_TTL`` seconds counts as gone, so a process that
died watches nothing. A connection that left keeps its row for the time at which
it left, with no process: the grace time of ``CancelAfter`` counts from there.
All of it by the database's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django.db import IntegrityError
from django.db.models import QuerySet

from ..models import Presence, Turn
from ..store import get_store
from ..store.generic import GenericStore
from . import clock, conversations, door, ends
from .records import ConversationRef, TurnRecord, TurnStatus

MOST = 500
"""Connections in one statement; SQLite takes 999 parameters on Django 5.2."""

_GONE = ""
"""The process of a connection that left."""

_TURN = f'"{Turn._meta.db_table}"'
_PRESENCE = f'"{Presence._meta.db_table}"'


def _rows() -> QuerySet[Presence]:
    return Presence.objects.using(door.alias())


def enter(ref: ConversationRef, connection: str, process: str, ttl: float) -> bool:
    """*connection* watches. False, and nothing is stored, while the conversation
    has no row: there is no turn to be stopped either, and a visit makes none."""
    pk = conversations.find(ref)
    if pk is None:
        return False
    alias = door.alias()
    mine = _rows().filter(conversation_id=pk, connection=connection)
    now = clock.now(alias)
    if mine.update(process=process, seen_at=now):
        return True
    try:
        with door.atomic():
            row = Presence(conversation_id=pk, connection=connection, process=process)
            row.seen_at = now
            row.save(using=alias, force_insert=True)
    except IntegrityError:
        # A call whose answer was lost has done it, or the conversation is gone.
        return bool(mine.update(process=process, seen_at=now))
    _sweep(pk, ttl)
    return True


def _sweep(conversation_pk: int, ttl: float) -> None:
    """Somebody watches, so it says nothing any more who left or died before."""
    store = cast(GenericStore, get_store(door.alias()))
    old = store.after('"seen_at"', "%s")
    store.execute(
        f'DELETE FROM {_PRESENCE} WHERE "conversation_id" = %s '  # noqa: S608
        f"AND (\"process\" = '' OR {old} <= {store.clock})",
        [conversation_pk, ttl],
    )


def leave(ref: ConversationRef, connection: str) -> None:
    """*connection* watches no more, from now on."""
    pk = conversations.find(ref)
    if pk is None:
        return
    mine = _rows().filter(conversation_id=pk)
    now = clock.now(door.alias())
    if mine.filter(connection=connection).update(process=_GONE, seen_at=now):
        # The last one to leave tells since when nobody watches.
        mine.filter(process=_GONE).exclude(connection=connection).delete()


def beat(connections: Sequence[str], process: str) -> set[str]:
    """These connections are still there; those of them that have a row."""
    seen: set[str] = set()
    for start in range(0, len(connections), MOST):
        some = connections[start : start + MOST]
        mine = _rows().filter(process=process, connection__in=some)
        mine.update(seen_at=clock.now(door.alias()))
        seen.update(mine.values_list("connection", flat=True))
    return seen


def stop_unwatched(
    ref: ConversationRef, turn: TurnRecord, grace: float, ttl: float
) -> bool:
    """Ask a running turn to stop if nobody has watched for *grace* seconds.

    They count from when the last one left, or was seen last where its process
    died, and not from before the turn began to run. *ttl*: seconds without a
    sign of life after which a process counts as dead.
    """
    if not _unwatched(turn, grace, ttl):
        return False
    with door.atomic():
        held = conversations.lock(turn.conversation_pk, ref.wake_key)
        if held is None or not _unwatched(turn, grace, ttl):
            return False
        ends.ask_to_stop(held, turn)
    return True


def _unwatched(turn: TurnRecord, grace: float, ttl: float) -> bool:
    store = cast(GenericStore, get_store(door.alias()))
    begun = store.after('t."started_at"', "%s")
    left, died = (store.after('p."seen_at"', "%s") for _ in range(2))
    found = store.rows(
        f'SELECT t."id" FROM {_TURN} t WHERE t."id" = %s AND t."epoch" = %s '  # noqa: S608
        f'AND t."status" = %s AND {begun} <= {store.clock} AND NOT EXISTS ('
        f'SELECT 1 FROM {_PRESENCE} p WHERE p."conversation_id" = t."conversation_id" '
        f"AND ({left} > {store.clock} "
        f"OR (p.\"process\" <> '' AND {died} > {store.clock})))",
        [turn.pk, turn.epoch, TurnStatus.RUNNING.value, grace, grace, ttl],
    )
    return bool(found)
