"""Deleting the events that every follower of a conversation has long seen.

The newest event of a conversation always stays: followers tell by its number
that something before it is missing, and then get the transcript.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from ..models import ConversationEvent
from ..store import get_store
from ..store.generic import GenericStore
from . import door

MOST = 500
"""Rows of one statement; SQLite takes 999 parameters on Django 5.2."""


def old_events(age: float, after: int, limit: int) -> list[int]:
    """Up to *limit* (and MOST) rows above *after* of events to delete, in order.

    *age*: seconds since they were written, by the database's clock.
    """
    store = cast(GenericStore, get_store(door.alias()))
    written = store.after('e."created_at"', "%s")
    rows = store.rows(
        # A number below the conversation's cursor is never the newest again.
        'SELECT e."id" FROM "django_streams_conversationevent" e '  # noqa: S608
        'JOIN "django_streams_conversation" c ON c."id" = e."conversation_id" '
        'WHERE e."id" > %s AND e."seq" < c."event_cursor" '
        f'AND {written} < {store.clock} ORDER BY e."id" LIMIT %s',
        [after, age, min(limit, MOST)],
    )
    return [row[0] for row in rows]


def delete_events(pks: Sequence[int]) -> int:
    """Delete these rows; how many this call did."""
    if not pks:
        return 0
    rows = ConversationEvent.objects.using(door.alias()).filter(pk__in=pks)
    return rows.delete()[0]
