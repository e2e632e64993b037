"""Reading the log: one statement a page, from one snapshot."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from .. import codec, ids
from ..exceptions import StreamsError
from ..types import StreamState, StreamStatus
from .base import Head, Page
from .database import BLOCK, STREAM, DatabaseStore, aware, aware_or_none

MAX_BLOCKS = 1000
"""Blocks that one page may span; each holds at least one chunk."""


class ReadingStore(DatabaseStore):
    # What vendors differ in

    LOCK: ClassVar[str] = "FOR UPDATE"
    """Ends a SELECT that locks its row against writers."""

    LOCK_TO_DELETE: ClassVar[str] = "FOR UPDATE"
    """The same for who will delete it: nobody may add a block meanwhile."""

    LOCK_TO_MERGE: ClassVar[str] = "FOR UPDATE"
    """The same for who will replace its blocks, if it can beside appends.

    Always the stream's row before its blocks: a merge and a deletion that take
    them in opposite orders deadlock.
    """

    BODY_IN: ClassVar[str] = "%s"
    BODY_OUT: ClassVar[str] = 'b."body"'

    @property
    @abstractmethod
    def clock(self) -> str:
        """SQL for the database's own time, in UTC, of this statement.

        A process clock never decides about a lease.
        """

    @abstractmethod
    def after(self, time: str, seconds: str) -> str:
        """SQL for *time* plus *seconds*; NULL when either is."""

    def _body_param(self, body: str) -> Any:
        return body.encode()

    def _body(self, stored: Any) -> str:
        return bytes(stored).decode()

    @property
    def lease_end(self) -> str:
        return self.after(self.clock, '"lease_seconds"')

    @property
    def lease_from_param(self) -> str:
        return self.after(self.clock, "%s")

    @property
    def lapsed(self) -> str:
        """Over for one more lease, and followers may settle it."""
        overdue = self.after('"lease_expires_at"', '"lease_seconds"')
        return f"(\"on_lapse\" = 'settle' AND {overdue} < {self.clock})"

    # Pages

    def head(self, key: str) -> Head | None:
        row = self.row(
            f'SELECT "id", "state", "cursor", "epoch", {self.lapsed} '
            f'FROM {STREAM} WHERE "key" = %s',
            [key],
        )
        return None if row is None else _head(row)

    def heads(self, pks: Sequence[int]) -> dict[int, Head]:
        marks = ", ".join(["%s"] * len(pks))
        rows = self.rows(
            f'SELECT "id", "state", "cursor", "epoch", {self.lapsed} '
            f'FROM {STREAM} WHERE "id" IN ({marks})',
            list(pks),
        )
        return {row[0]: _head(row) for row in rows}

    def page(self, pk: int, start: int, max_bytes: int) -> Page | None:
        rows = self._page_rows(pk, start, max_bytes)
        if not rows:
            return None
        head = _head(rows[0])
        texts: list[str] = []
        position = start
        for *_, seq_from, body in rows:
            if seq_from is None:
                break
            if seq_from > position:
                raise hole(pk, position)
            block = codec.split(self._body(body))
            texts += block[position - seq_from :]
            position = seq_from + len(block)
        return Page(head, texts)

    def _page_rows(self, pk: int, start: int, max_bytes: int) -> list[tuple[Any, ...]]:
        """The head's columns, a block's seq_from and its body; by seq_from.

        One row without a block where there is none; no row without a stream.
        """
        # The page begins in the last block at or before `start`: a condition on
        # seq_from alone goes blind after a merge, one on seq_from + count scans
        # the log from its beginning. Lengths are summed without the bodies, and
        # a reader at the tail reads none.
        return self.rows(
            f'SELECT s."id", "state", "cursor", "epoch", {self.lapsed}, '
            f'b."seq_from", {self.BODY_OUT} FROM {STREAM} s LEFT JOIN {BLOCK} b '
            f'ON b."stream_id" = s."id" AND b."seq_from" + b."count" > %s '
            f'AND b."seq_from" IN ('
            f'SELECT w."seq_from" FROM (SELECT v."seq_from", v."size", '
            f'SUM(v."size") OVER (ORDER BY v."seq_from") AS "upto" '
            f'FROM (SELECT "seq_from", LENGTH("body") AS "size" FROM {BLOCK} '
            f'WHERE "stream_id" = %s AND "seq_from" >= COALESCE((SELECT '
            f'MAX("seq_from") FROM {BLOCK} WHERE "stream_id" = %s AND '
            f'"seq_from" <= %s), 0) ORDER BY "seq_from" LIMIT {MAX_BLOCKS}) v) w '
            f'WHERE w."upto" <= %s OR w."upto" = w."size") '
            f'WHERE s."id" = %s ORDER BY b."seq_from"',
            [start, pk, pk, start, max_bytes, pk],
        )

    # Status

    @property
    def _status_columns(self) -> str:
        return (
            '"stream_id", "state", "cursor", "tag", "metadata", "error", '
            'CASE WHEN "state" <> \'streaming\' OR "lease_expires_at" IS NULL '
            f"THEN NULL WHEN \"lease_expires_at\" < {self.clock} THEN 'lapsed' "
            "ELSE 'live' END, "
            '"created_at", "updated_at", "closed_at"'
        )

    def status(self, key: str) -> StreamStatus | None:
        row = self.row(
            f'SELECT {self._status_columns} FROM {STREAM} WHERE "key" = %s', [key]
        )
        return None if row is None else _status(row)

    def list(
        self, states: Sequence[StreamState], tag: str | None, limit: int
    ) -> Sequence[StreamStatus]:
        where, params = [], list[Any]()
        if states:
            where.append(f'"state" IN ({", ".join(["%s"] * len(states))})')
            params += [state.value for state in states]
        if tag is not None:
            where.append('"tag_key" = %s')
            params.append(ids.tag_key(tag))
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        rows = self.rows(
            f"SELECT {self._status_columns} FROM {STREAM}{condition} "
            f'ORDER BY "created_at" DESC, "id" DESC LIMIT %s',
            [*params, limit],
        )
        return [_status(row) for row in rows]

    def owner(self, key: str) -> str | None:
        row = self.row(f'SELECT "owner_key" FROM {STREAM} WHERE "key" = %s', [key])
        return None if row is None else str(row[0])

    def cancel_requested(self, pks: Sequence[int]) -> set[int]:
        if not pks:
            return set()
        marks = ", ".join(["%s"] * len(pks))
        rows = self.rows(
            f'SELECT "id" FROM {STREAM} WHERE "id" IN ({marks}) '
            'AND "cancel_requested" IS NOT NULL',
            list(pks),
        )
        return {row[0] for row in rows}

    def now(self) -> datetime:
        """The database's clock, as an aware UTC time."""
        row = self.row(f"SELECT {self.clock} WHERE 1 = %s", [1])
        assert row is not None
        return aware(row[0])


def _head(row: tuple[Any, ...]) -> Head:
    pk, state, cursor, epoch, lapsed, *_ = row
    return Head(pk, StreamState(state), cursor, epoch, bool(lapsed))


def hole(pk: int, seq: int) -> StreamsError:
    return StreamsError(
        f"stream row {pk} has a hole at seq {seq}: its blocks were changed by hand; "
        "restore them or delete the stream",
        code="hole",
    )


def _status(row: tuple[Any, ...]) -> StreamStatus:
    stream_id, state, cursor, tag, metadata, error, lease, created, updated, ended = row
    return StreamStatus(
        stream_id=stream_id,
        state=StreamState(state),
        cursor=cursor,
        tag=tag,
        metadata=None if metadata is None else codec.decode(metadata),
        error=error,
        lease=lease,
        created_at=aware(created),
        updated_at=aware(updated),
        closed_at=aware_or_none(ended),
    )
