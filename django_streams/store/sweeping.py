"""What the sweepers do: find streams nobody looks after, and old ones.

Each function is one short transaction, correct beside traffic and beside a
second sweeper: what was found is changed only if it is still so.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import StreamState
from .base import CANCELLED, INTERRUPTED
from .database import BLOCK, STREAM
from .generic import GenericStore


@dataclass(frozen=True, slots=True)
class Neglected:
    """A live stream that must be settled, and why."""

    pk: int
    stream_id: str
    key: str
    reason: str


def _neglected(store: GenericStore) -> tuple[str, str]:
    """SQL for "asked to stop too long ago" and "nobody looks after it".

    Silence counts from the last append, not from the opening: a long run that
    still appends is never touched.
    """
    ago = store.after('"cancel_requested"', "%s")
    silent = store.after('"updated_at"', "%s")
    unwilling = f'("cancel_requested" IS NOT NULL AND {ago} < {store.clock})'
    unattended = (
        f'({store.lapsed} OR ({silent} < {store.clock} AND ("lease_expires_at" '
        f'IS NULL OR "lease_expires_at" < {store.clock})))'
    )
    return unwilling, unattended


def find_neglected(
    store: GenericStore, *, stale: float, grace: float, after: int, limit: int
) -> list[Neglected]:
    """Up to *limit* such streams with ids above *after*, in the order of ids.

    *stale*: seconds of silence without a live lease. *grace*: seconds that a
    producer has to stop once it was asked to.
    """
    unwilling, unattended = _neglected(store)
    rows = store.rows(
        f'SELECT "id", "stream_id", "key", CASE WHEN {unwilling} THEN %s ELSE %s END '
        f'FROM {STREAM} WHERE "state" = %s AND "id" > %s '
        f'AND ({unwilling} OR {unattended}) ORDER BY "id" LIMIT %s',
        [
            grace,
            CANCELLED,
            INTERRUPTED,
            StreamState.STREAMING.value,
            after,
            grace,
            stale,
            limit,
        ],
    )
    return [Neglected(*row) for row in rows]


def settle_neglected(
    store: GenericStore, stream: Neglected, *, stale: float, grace: float
) -> bool:
    """Settle as errored if it is still neglected; whether this call did."""
    unwilling, unattended = _neglected(store)
    return bool(
        store.execute(
            f'UPDATE {STREAM} SET "state" = %s, "error" = %s, '
            f'"closed_at" = {store.clock}, "updated_at" = {store.clock} '
            f'WHERE "id" = %s AND "state" = %s AND ({unwilling} OR {unattended})',
            [
                StreamState.ERRORED.value,
                stream.reason,
                stream.pk,
                StreamState.STREAMING.value,
                grace,
                stale,
            ],
        )
    )


@dataclass(frozen=True, slots=True)
class Old:
    """A stream settled long enough ago to be deleted."""

    pk: int
    stream_id: str
    key: str


def find_old(
    store: GenericStore, *, completed: float, after: int, limit: int
) -> list[Old]:
    """Up to *limit* streams settled longer than *completed* seconds ago."""
    ended = store.after('"closed_at"', "%s")
    rows = store.rows(
        f'SELECT "id", "stream_id", "key" FROM {STREAM} WHERE "state" <> %s '
        f'AND "id" > %s AND {ended} < {store.clock} ORDER BY "id" LIMIT %s',
        [StreamState.STREAMING.value, after, completed, limit],
    )
    return [Old(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class Scattered:
    """A stream whose blocks were left small, and below which seq to merge."""

    pk: int
    below: int


def find_scattered(
    store: GenericStore, *, quiet: float, after: int, limit: int
) -> list[Scattered]:
    """Up to *limit* streams with blocks to merge, none changed for *quiet* seconds.

    A merged block has no writer, so what is merged already is not found again;
    blocks that are too large to have a neighbour are, and stay as they are.
    """
    since = store.after('s."updated_at"', "%s")
    rows = store.rows(
        # The last block of a live stream keeps its token: by it a retry finds
        # out that it is stored.
        f'SELECT s."id", CASE WHEN s."state" = %s THEN MAX(b."seq_from") '
        f'ELSE s."cursor" END FROM {STREAM} s JOIN {BLOCK} b '
        f'ON b."stream_id" = s."id" AND b."writer" IS NOT NULL '
        f'WHERE s."id" > %s AND {since} < {store.clock} '
        f'GROUP BY s."id", s."state", s."cursor" '
        f'HAVING COUNT(*) > CASE WHEN s."state" = %s THEN 2 ELSE 1 END '
        f'ORDER BY s."id" LIMIT %s',
        [
            StreamState.STREAMING.value,
            after,
            quiet,
            StreamState.STREAMING.value,
            limit,
        ],
    )
    return [Scattered(*row) for row in rows]


def size(store: GenericStore, pk: int) -> int:
    """Bytes of chunk text that a stream holds."""
    row = store.row(
        f'SELECT COALESCE(SUM(LENGTH("body")), 0) FROM {BLOCK} WHERE "stream_id" = %s',
        [pk],
    )
    return int(row[0]) if row else 0


def delete_old(store: GenericStore, pk: int) -> bool:
    """Delete one settled stream with its blocks; whether this call did.

    Row and blocks go together, so that no reader ever sees a log with a hole.
    """
    with store.atomic():
        # A settled stream stays settled; the lock is against a second sweeper.
        row = store.row(
            f'SELECT 1 FROM {STREAM} WHERE "id" = %s AND "state" <> %s '
            f"{store.LOCK_TO_DELETE}",
            [pk, StreamState.STREAMING.value],
        )
        if row is None:
            return False
        store.delete_rows(pk)
        return True
