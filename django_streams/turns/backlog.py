"""What waits to be run and what was left behind, over all conversations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import Count, Min, Q

from ..models import Conversation, Turn
from ..store import get_store
from ..store.generic import GenericStore
from . import clock, door, queue
from .records import ConversationRef, TurnStatus

_TURN = f'"{Turn._meta.db_table}"'
_CONVERSATION = f'"{Conversation._meta.db_table}"'
_WHICH = 'c."id", c."agent", c."name", c."owner_key"'

_LAPSED, _WAITING = 0, 1


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation that wants a runner."""

    ref: ConversationRef
    conversation_pk: int


@dataclass(frozen=True, slots=True)
class Look:
    """What one question to the database found."""

    waiting: Sequence[Found] = ()
    """The oldest queued turn could run now."""
    lapsed: Sequence[Found] = ()
    """The running turn has lost its runner, or nobody called the completion
    hook of one that ended."""


def look(
    waiting_of: Sequence[str],
    lapsed_of: Sequence[str],
    *,
    limit: int,
    older_than: float = 0.0,
) -> Look:
    """One query: what waits (of some agents), what has lapsed (of others).

    At most *limit* of each, and what waits only if it was submitted
    *older_than* seconds ago. It comes in the order in which its conversations
    became ready: by the submit of the oldest turn, or by the end of the turn
    before it if that was later. So a conversation with a hundred queued turns
    lets every other one pass after each of them.
    """
    if not waiting_of and not lapsed_of:
        return Look()
    store = cast(GenericStore, get_store(door.alias()))
    parts: list[str] = []
    params: list[Any] = []
    late = f't."lease_expires_at" < {store.clock}'
    if lapsed_of:
        parts.append(
            f"SELECT {_LAPSED} AS kind, {_WHICH} FROM {_TURN} t "
            f'JOIN {_CONVERSATION} c ON c."id" = t."conversation_id" '
            f'WHERE ((t."status" = %s AND {late}) OR t."respond_by" < {store.clock}) '
            f'AND c."agent" IN ({_marks(lapsed_of)}) LIMIT %s'
        )
        params += [TurnStatus.RUNNING.value, *lapsed_of, limit]
    if waiting_of:
        ready = 'CASE WHEN p."finished_at" > q.since THEN p."finished_at" ELSE q.since'
        old_enough = store.after('t."created_at"', "%s")
        parts.append(
            f"SELECT {_WAITING} AS kind, {_WHICH} FROM ("
            'SELECT t."conversation_id" AS conversation, MIN(t."position") AS head, '
            f'MIN(t."created_at") AS since FROM {_TURN} t '
            f'JOIN {_CONVERSATION} c ON c."id" = t."conversation_id" '
            'WHERE t."status" = %s '
            f'AND (t."not_before" IS NULL OR t."not_before" <= {store.clock}) '
            # While it waits, a turn's lease is that of the process that holds it.
            f'AND (t."lease_expires_at" IS NULL OR {late}) '
            # Of one that waits it is whoever will bring its messages that lives.
            'AND (t."lease_expires_at" IS NULL '
            f'OR t."lease_expires_at" <= {store.clock}) '
            f"AND {old_enough} <= {store.clock} "
            f'AND c."agent" IN ({_marks(waiting_of)}) '
            f"AND NOT EXISTS (SELECT 1 FROM {_TURN} r "
            'WHERE r."running_of_id" = c."id") '
            'GROUP BY t."conversation_id") q '
            f'JOIN {_CONVERSATION} c ON c."id" = q.conversation '
            f'LEFT JOIN {_TURN} p ON p."conversation_id" = q.conversation '
            f'AND p."position" = q.head - 1 ORDER BY {ready} END LIMIT %s'
        )
        params += [TurnStatus.QUEUED.value, older_than, *waiting_of, limit]
    # Each part in a SELECT of its own: SQLite has no parentheses around them.
    sql = " UNION ALL ".join(
        f"SELECT * FROM ({part}) part{at}" for at, part in enumerate(parts)
    )
    found = [
        (kind, Found(ConversationRef(agent, name, owner), pk))
        for kind, pk, agent, name, owner in store.rows(sql, params)
    ]
    return Look(
        waiting=[one for kind, one in found if kind == _WAITING],
        # Several turns of one conversation may be overdue.
        lapsed=list(dict.fromkeys(one for kind, one in found if kind == _LAPSED)),
    )


@dataclass(frozen=True, slots=True)
class Head:
    """A conversation as its followers need it."""

    cursor: int
    """Of its event log."""
    lapsed: bool
    """It wants a sweep, as what :func:`look` finds lapsed."""


def heads(keys: Sequence[str]) -> dict[str, Head]:
    """One query: the heads of some conversations, by key; without those that are
    not there."""
    # Asked at every wake. The ORM takes longer to build it than the database to
    # answer.
    store = cast(GenericStore, get_store(door.alias()))
    sql = (
        'SELECT c."key", c."event_cursor", '
        f'r."lease_expires_at" < {store.clock} OR EXISTS (SELECT 1 FROM {_TURN} u '
        f'WHERE u."conversation_id" = c."id" AND u."respond_by" < {store.clock}) '
        f'FROM {_CONVERSATION} c LEFT JOIN {_TURN} r ON r."running_of_id" = c."id" '
        f'WHERE c."key" IN ({_marks(keys)})'
    )
    return {
        key: Head(cursor, bool(lapsed)) for key, cursor, lapsed in store.rows(sql, keys)
    }


def _marks(values: Sequence[str]) -> str:
    return ", ".join(["%s"] * len(values))


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far behind the runners are."""

    queued: int
    running: int
    oldest: float | None
    """Seconds since the submit of the oldest turn that could run; None: none."""


def measure(agents: Iterable[str] | None = None) -> Backlog:
    """Count the turns of some agents, or of all."""
    mine = queue.turns()
    if agents is not None:
        mine = mine.filter(conversation__agent__in=list(agents))
    alias = door.alias()
    free = Q(status=TurnStatus.QUEUED.value, conversation__running_turn=None)
    due = Q(not_before=None) | Q(not_before__lte=clock.now(alias))
    counts = mine.filter(
        status__in=[TurnStatus.QUEUED.value, TurnStatus.RUNNING.value]
    ).aggregate(
        queued=Count("pk", filter=Q(status=TurnStatus.QUEUED.value)),
        running=Count("pk", filter=Q(status=TurnStatus.RUNNING.value)),
        now=Min(clock.now(alias)),
    )
    since = mine.filter(free, due).aggregate(since=Min("created_at"))["since"]
    now = counts["now"]
    oldest = None if since is None or now is None else (now - since).total_seconds()
    return Backlog(
        queued=counts["queued"],
        running=counts["running"],
        oldest=None if oldest is None else max(0.0, oldest),
    )
