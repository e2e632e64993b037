"""PostgreSQL: the fence and the insert in one statement, one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from django.conf import settings

from .. import codec
from ..exceptions import StreamsError, StreamUnavailableError
from ..types import StreamState
from .base import Append, OpenRequest, Stored
from .database import BLOCK, STREAM
from .generic import GenericStore
from .prepared import PreparedStatements, is_prepared
from .reading import MAX_BLOCKS

_LARGE, _FEW = 16_384, 16
"""Where blocks are this large a page looks at few: at a thousand, the sum of
lengths costs as much as the bodies."""

_READ_ONLY = "25006"
"""SQLSTATE of a write that the server refuses: during a failover it is a standby
still, or not the primary any more."""

_TOO_MUCH = "54"
"""The class of SQLSTATEs for what is beyond the server's own limits, however often
it is tried."""


_AWAY = ("08", "53300", "57P", _READ_ONLY)
"""No connection, no more connections, shutting down or not yet up, read only."""


def _code(error: Exception) -> str:
    """The SQLSTATE, also of an error that did not come through Django; empty
    without one, as where there is no connection."""
    found = (getattr(one, "sqlstate", None) for one in (error, error.__cause__))
    return next(filter(None, found), "")


class PostgreSQLStore(GenericStore):
    vendor: ClassVar[str] = "postgresql"

    LOCK: ClassVar[str] = "FOR NO KEY UPDATE"
    LOCK_TO_MERGE: ClassVar[str] = "FOR KEY SHARE"
    # Plain bytea through Django reads at 156-214 MB/s, this at 557-670.
    BODY_IN: ClassVar[str] = "convert_to(%s, 'UTF8')"
    BODY_OUT: ClassVar[str] = "convert_from(b.\"body\", 'UTF8')"

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self._prepared = PreparedStatements()

    def _cursor(self) -> AbstractContextManager[Any]:
        return self._prepared.cursor(self.connection)

    def transient(self, error: Exception) -> bool:
        code = _code(error)
        if code.startswith(_TOO_MUCH):
            return False
        return (
            super().transient(error)
            or code == _READ_ONLY
            or self._prepared.failed(error)
        )

    def away(self, error: Exception) -> bool:
        code = _code(error)
        known = super().transient(error) and not code
        return known or code.startswith(_AWAY)

    @property
    def clock(self) -> str:
        # transaction_timestamp() stands still in a long transaction. Without
        # USE_TZ the columns hold no zone; ours are in UTC all the same.
        if settings.USE_TZ:
            return "statement_timestamp()"
        return "(statement_timestamp() AT TIME ZONE 'UTC')"

    def after(self, time: str, seconds: str) -> str:
        return f"({time} + {seconds} * interval '1 second')"

    def _body_param(self, body: str) -> Any:
        return body

    def _body(self, stored: Any) -> str:
        return stored if isinstance(stored, str) else str(stored, "utf-8")

    def _page_rows(self, pk: int, start: int, max_bytes: int) -> list[tuple[Any, ...]]:
        # One scan from the first block on, with the bodies: here they are
        # pointers until convert_from() reads what is left of them. Joining the
        # lengths back to the blocks, as elsewhere, became a nested loop over the
        # stream: 12 ms a page of a 50 MB log against 1.4.
        params = [pk, pk, start, pk, start, start, max_bytes, pk]
        with self._cursor() as cursor:
            if is_prepared(cursor):
                # As bytes, decoded here: a third less time than as text.
                cursor.execute(self._page_sql('b."body"'), params, binary=True)
            else:
                cursor.execute(self._page_sql(self.BODY_OUT), params)
            return list(cursor.fetchall())

    def _page_sql(self, body: str) -> str:
        return (
            f'SELECT s."id", "state", "cursor", "epoch", {self.lapsed}, '
            f'b."seq_from", {body} FROM {STREAM} s LEFT JOIN ('
            f'SELECT "stream_id", "seq_from", "count", "body", '
            f'SUM(LENGTH("body")) OVER (ORDER BY "seq_from") AS "upto" '
            f'FROM (SELECT * FROM {BLOCK} WHERE "stream_id" = %s '
            f'AND "seq_from" >= COALESCE((SELECT "seq_from" FROM {BLOCK} '
            f'WHERE "stream_id" = %s AND "seq_from" <= %s '
            f'ORDER BY "seq_from" DESC LIMIT 1), 0) '
            f'ORDER BY "seq_from" LIMIT (SELECT CASE WHEN LENGTH("body") > {_LARGE} '
            f'THEN {_FEW} ELSE {MAX_BLOCKS} END FROM {BLOCK} WHERE "stream_id" = %s '
            f'AND "seq_from" <= %s ORDER BY "seq_from" DESC LIMIT 1)) v) b '
            f'ON b."stream_id" = s."id" AND b."seq_from" + b."count" > %s '
            f'AND (b."upto" <= %s OR b."upto" = LENGTH(b."body")) '
            f'WHERE s."id" = %s ORDER BY b."seq_from"'
        )

    def append(self, entry: Append) -> int:
        if self._in_one_block(entry):
            at = entry.expected
            if self._put_one(entry, at, '"id" = %s'):
                entry.expected = at
                return at
            with self.atomic():
                return self._append_locked(entry)
        return super().append(entry)

    def _in_one_block(self, entry: Append) -> bool:
        return len(list(self._blocks(entry.texts))) == 1

    def _put_one(self, entry: Append, at: int, which: str) -> bool:
        """The fence and the insert; writers racing a settle leave no gap."""
        stored = self.execute(
            f'WITH s AS (UPDATE {STREAM} SET "cursor" = "cursor" + %s, '
            f'"updated_at" = {self.clock}, "lease_expires_at" = {self.lease_end} '
            f'WHERE {which} AND "state" = %s AND "epoch" = %s AND "cursor" = %s '
            f'AND "cancel_requested" IS NULL RETURNING "id") '
            f'INSERT INTO {BLOCK} ("stream_id", "seq_from", "count", "writer", '
            f'"body") SELECT "id", %s, %s, %s, {self.BODY_IN} FROM s',
            [
                len(entry.texts),
                entry.pk,
                StreamState.STREAMING.value,
                entry.epoch,
                at,
                at,
                len(entry.texts),
                entry.token,
                codec.join(entry.texts),
            ],
        )
        return bool(stored)

    def append_batch(self, entries: Sequence[Append]) -> list[Stored]:
        at = {entry.pk: entry.expected for entry in entries}
        whole = [entry for entry in entries if self._in_one_block(entry)]
        if len(whole) == 1:
            # The statement for many costs one entry twice the planning.
            free = (
                f'"id" = (SELECT "id" FROM {STREAM} WHERE "id" = %s {self.LOCK} '
                "SKIP LOCKED)"
            )
            one = whole[0]
            stored = {one.pk} if self._put_one(one, at[one.pk], free) else set()
        else:
            stored = self._put_batch(whole, at) if whole else set()
        rest = [entry for entry in entries if entry.pk not in stored]
        answers = self._put_rest(rest) if rest else {}
        results: list[Stored] = []
        for entry in entries:
            if entry.pk in stored:
                entry.expected = at[entry.pk]
                results.append(entry.expected)
            else:
                results.append(answers[entry.pk])
        return results

    def _put_batch(self, entries: Sequence[Append], at: dict[int, int]) -> set[int]:
        """One statement for all; the ids of the streams that took theirs.

        Rows are locked in the order of ids, or two processes deadlock (14 times
        in 1,200 batches), and a row that is locked is left out, or one view's
        open transaction stalls everybody.
        """
        columns = [
            [e.pk for e in entries],
            [e.epoch for e in entries],
            [at[e.pk] for e in entries],
            [len(e.texts) for e in entries],
            [e.token for e in entries],
            [codec.join(e.texts) for e in entries],
        ]
        rows = self.rows(
            f"WITH w AS (SELECT * FROM unnest(%s::bigint[], %s::bigint[], "
            f"%s::bigint[], %s::int[], %s::bigint[], %s::text[]) "
            f"AS t(id, epoch, expected, n, token, body)), "
            f'l AS (SELECT s."id" FROM {STREAM} s JOIN w ON w.id = s."id" '
            f'WHERE s."state" = %s AND s."epoch" = w.epoch '
            f'AND s."cursor" = w.expected AND s."cancel_requested" IS NULL '
            f'ORDER BY s."id" FOR NO KEY UPDATE OF s SKIP LOCKED), '
            f'm AS (UPDATE {STREAM} s SET "cursor" = s."cursor" + w.n, '
            f'"updated_at" = {self.clock}, '
            f'"lease_expires_at" = {self.lease_end} '
            f'FROM w JOIN l ON l."id" = w.id WHERE s."id" = w.id RETURNING s."id") '
            f'INSERT INTO {BLOCK} ("stream_id", "seq_from", "count", "writer", '
            f'"body") SELECT w.id, w.expected, w.n, w.token, '
            f"convert_to(w.body, 'UTF8') FROM w JOIN m ON m.\"id\" = w.id "
            f'RETURNING "stream_id"',
            [*columns, StreamState.STREAMING.value],
        )
        return {row[0] for row in rows}

    def _put_rest(self, entries: Sequence[Append]) -> dict[int, Stored]:
        """What the statement left out: locked, refused, or to be stored elsewhere.

        In one transaction for all, or two processes that append to the same
        streams, and so miss each other's rows all the time, pay six round trips
        for each.
        """
        answers: dict[int, Stored] = {}
        moved: list[Append] = []
        with self.atomic():
            rows = self._lock_unheld([entry.pk for entry in entries])
            for entry in entries:
                if entry.pk not in rows:
                    answers[entry.pk] = None
                elif (
                    (row := rows[entry.pk]) is not None
                    and row[0] == entry.epoch
                    and not entry.maybe_stored
                    and self._in_one_block(entry)
                ):
                    # A retry must look here, should the answer be lost.
                    entry.expected = answers[entry.pk] = row[1]
                    moved.append(entry)
                else:
                    try:
                        answers[entry.pk] = self._append_locked(entry)
                    except StreamsError as refused:
                        answers[entry.pk] = refused
            if moved:
                self._put_batch(moved, {entry.pk: entry.expected for entry in moved})
        return answers

    def _lock_unheld(self, pks: Sequence[int]) -> dict[int, tuple[int, int] | None]:
        """Lock the rows that nobody else holds, in the order of ids.

        For each its epoch and cursor, or None where the stream takes no append
        or is gone.
        """
        rows = self.rows(
            f'SELECT "id", "epoch", "cursor", "state" = %s AND "cancel_requested" IS '
            f'NULL FROM {STREAM} WHERE "id" = ANY(%s) ORDER BY "id" {self.LOCK} '
            "SKIP LOCKED",
            [StreamState.STREAMING.value, list(pks)],
        )
        mine: dict[int, tuple[int, int] | None] = {
            pk: (epoch, cursor) if takes else None for pk, epoch, cursor, takes in rows
        }
        if missing := [pk for pk in pks if pk not in mine]:
            # Held, or gone; a plain read waits for nobody.
            held = self.rows(
                f'SELECT "id" FROM {STREAM} WHERE "id" = ANY(%s)', [missing]
            )
            mine |= dict.fromkeys(set(missing) - {row[0] for row in held})
        return mine

    def _insert_stream(self, request: OpenRequest) -> int | None:
        text, params = self._stream_insert(request)
        row = self.row(f'{text} ON CONFLICT DO NOTHING RETURNING "id"', params)
        return None if row is None else int(row[0])

    def explain(self, error: Exception) -> StreamsError | None:
        if getattr(error.__cause__, "sqlstate", None) != "40001":
            return None
        return StreamUnavailableError(
            f"a concurrent write to the stream failed this transaction ({error}): "
            "under the isolation level REPEATABLE READ or SERIALIZABLE it must be "
            "repeated as a whole; use READ COMMITTED, or append outside atomic()"
        )
