"""MariaDB and MySQL: neither returns the rows of an update, both read a blob as
a whole to know its length, and both have fixed ideas about time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

from django.db import Error, InterfaceError, OperationalError

from .. import codec
from ..exceptions import ChunkTooLargeError, StreamsError, StreamUnavailableError
from ..types import StreamState
from . import inherited  # noqa: F401  (watches over forks)
from .base import Append, Page, Stored
from .database import BLOCK, STREAM
from .generic import GenericStore
from .reading import hole

MAX_BLOCKS = 500
"""Blocks that one page may span. Both servers end a recursion after 1,000 steps,
MySQL with an error."""

_SURE_BYTES = 262_144
"""A statement with a body up to here fits into a packet of any server."""

_ESCAPED = (b"\0", b"\n", b"\r", b"\x1a", b'"', b"'", b"\\")
"""Bytes that the driver writes as two; JSON text holds many quotes."""

_BY_ID = "FORCE INDEX (PRIMARY)"
"""Where a table is small the server would rather look at all of its rows, lock them,
and stop at one that is held and not meant: a deadlock."""

_DELETE_BLOCKS = f"DELETE b FROM {BLOCK} b FORCE INDEX (ds_block_position) WHERE"
"""The same for blocks. Only a statement that could delete from several tables may
name an index."""

_LOST_TO_OTHERS = frozenset(
    {
        1020,  # a locked row is newer than the snapshot (REPEATABLE READ)
        1205,  # waited too long for a lock
        1213,  # deadlock; in a Galera cluster, a conflict with another node
    }
)
_TRANSIENT = _LOST_TO_OTHERS | {
    1040,  # too many connections
    1047,  # a Galera node that is not ready
    1053,  # the server shuts down
    1203,  # too many connections of this user
    1290,  # read only, as a replica is until it has been promoted
    1836,  # the same on MySQL
    1927,  # the connection was killed
    2002,  # cannot connect
    2003,
    2005,  # the host's name was not found
    2006,  # the server has gone away
    2013,  # the connection was lost in the middle
    2055,
    4031,  # the server closed an idle connection (MySQL)
}


def _code(error: Exception) -> int | None:
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


class MySQLStore(GenericStore):
    vendor: ClassVar[str] = "mysql"

    def _sql(self, text: str) -> str:
        # No literal of ours holds a quotation mark.
        return text.replace('"', "`")

    @property
    def clock(self) -> str:
        # NOW() is in the session's zone, which is the server's unless told.
        return "UTC_TIMESTAMP(6)"

    def after(self, time: str, seconds: str) -> str:
        return f"({time} + INTERVAL ROUND({seconds} * 1000000) MICROSECOND)"

    def transient(self, error: Exception) -> bool:
        # By number: a column that is missing is an OperationalError too. One
        # without a number is not the server's.
        if isinstance(error, OperationalError):
            return _code(error) in (*_TRANSIENT, None)
        return isinstance(error, InterfaceError)

    def away(self, error: Exception) -> bool:
        return self.transient(error) and _code(error) not in _LOST_TO_OTHERS

    def explain(self, error: Exception) -> StreamsError | None:
        if _code(error) not in _LOST_TO_OTHERS:
            return None
        return StreamUnavailableError(
            f"a concurrent write to the stream failed this transaction ({error}); "
            "repeat it as a whole, or append outside atomic()"
        )

    def reset(self) -> None:
        # The driver refuses to close what it has closed; Django forgets it first.
        with suppress(Error):
            super().reset()

    # Appending

    def append_batch(self, entries: Sequence[Append]) -> list[Stored]:
        # In four statements, whatever the number of entries.
        results: dict[int, Stored] = {}
        ready: list[Append] = []
        with self.atomic():
            rows = self._lock_unheld(sorted(entry.pk for entry in entries))
            for entry in entries:
                if entry.pk not in rows:
                    results[entry.pk] = None
                elif rows[entry.pk] == (entry.epoch, entry.expected):
                    ready.append(entry)
                    results[entry.pk] = entry.expected
                else:
                    try:
                        results[entry.pk] = self._append_locked(entry)
                    except StreamsError as refused:
                        results[entry.pk] = refused
            if ready:
                self._put(ready)
        return [results[entry.pk] for entry in entries]

    def _lock_unheld(self, pks: Sequence[int]) -> dict[int, tuple[int, int] | None]:
        """Lock the rows that nobody else holds, in the order of ids.

        For each its epoch and cursor, or None where the stream takes no append
        or is gone.
        """
        marks = ", ".join(["%s"] * len(pks))
        rows = self.rows(
            f'SELECT "id", "epoch", "cursor", "state" = %s AND "cancel_requested" IS '
            f'NULL FROM {STREAM} {_BY_ID} WHERE "id" IN ({marks}) ORDER BY "id" '
            "FOR UPDATE SKIP LOCKED",
            [StreamState.STREAMING.value, *pks],
        )
        mine: dict[int, tuple[int, int] | None] = {
            pk: (epoch, cursor) if takes else None for pk, epoch, cursor, takes in rows
        }
        if missing := [pk for pk in pks if pk not in mine]:
            marks = ", ".join(["%s"] * len(missing))
            # Only the table knows whether such a row is held or gone; a plain
            # read waits for nobody.
            held = self.rows(
                f'SELECT "id" FROM {STREAM} WHERE "id" IN ({marks})', missing
            )
            mine |= dict.fromkeys(set(missing) - {row[0] for row in held})
        return mine

    def _put(self, entries: Sequence[Append]) -> None:
        """Store the chunks of streams whose rows this transaction has locked."""
        by_count: dict[int, list[int]] = {}
        for entry in entries:
            by_count.setdefault(len(entry.texts), []).append(entry.pk)
        for count, pks in by_count.items():
            marks = ", ".join(["%s"] * len(pks))
            self.execute(
                f'UPDATE {STREAM} {_BY_ID} SET "cursor" = "cursor" + %s, '
                f'"updated_at" = {self.clock}, "lease_expires_at" = {self.lease_end} '
                f'WHERE "id" IN ({marks})',
                [count, *pks],
            )
        with self.connection.cursor() as cursor:
            # The driver joins rows to statements of 64 KB, or one larger row.
            cursor.executemany(
                self._sql(
                    f'INSERT INTO {BLOCK} ("stream_id", "seq_from", "count", '
                    '"writer", "body") VALUES (%s, %s, %s, %s, %s)'
                ),
                [
                    (
                        entry.pk,
                        entry.expected + first,
                        len(texts),
                        entry.token,
                        self._body_param(codec.join(texts)),
                    )
                    for entry in entries
                    for first, texts in self._blocks(entry.texts)
                ],
            )

    def delete_log(self, pk: int) -> None:
        self.execute(f'{_DELETE_BLOCKS} b."stream_id" = %s', [pk])

    def delete_blocks(self, pk: int, seqs: Sequence[int]) -> int:
        # One by one: at the end of a range the block behind it is locked too.
        marks = ", ".join(["%s"] * len(seqs))
        return self.execute(
            f'{_DELETE_BLOCKS} b."stream_id" = %s AND b."seq_from" IN ({marks})',
            [pk, *seqs],
        )

    def _body_param(self, body: str) -> bytes:
        data = body.encode()
        if len(data) > _SURE_BYTES:
            # The server would end the connection in the middle of the statement,
            # and every retry would look like another outage.
            size = len(data) + sum(map(data.count, _ESCAPED)) + _SURE_BYTES
            row = self.row("SELECT @@max_allowed_packet", [])
            assert row is not None
            if size > (limit := int(row[0])):
                raise ChunkTooLargeError(
                    f"{len(data)} bytes of JSON text do not fit into one packet of "
                    f"the database {self.alias!r}, whose max_allowed_packet is "
                    f"{limit}: raise it there, or lower max_chunk_bytes",
                    size=len(data),
                    limit=limit,
                )
        return data

    def _holds(self, entry: Append) -> bool:
        # A locking read sees what is committed; a plain one under REPEATABLE
        # READ may see the log as it was before the lost write.
        return bool(
            self.row(
                f'SELECT 1 FROM {BLOCK} WHERE "stream_id" = %s AND "seq_from" = %s '
                f'AND "writer" = %s LOCK IN SHARE MODE',
                [entry.pk, entry.expected, entry.token],
            )
        )

    # Reading

    def page(self, pk: int, start: int, max_bytes: int) -> Page | None:
        head = self.heads([pk]).get(pk)
        if head is None:
            return None
        if head.cursor <= start:
            # At the tail, where most readers are most of the time: without the
            # body of the last block, whose length is known only by reading it.
            return Page(head, [])
        try:
            page = super().page(pk, start, max_bytes)
            if page is not None and not page.texts and page.head.cursor > start:
                raise hole(pk, start)
        except StreamsError as error:
            if error.code == "hole" and self.in_atomic():
                # A row that this transaction wrote is new there, what others
                # stored beside it is not.
                raise StreamsError(
                    f"{error}. Or this transaction is REPEATABLE READ, and does not "
                    "see what others stored since it began: read outside of it",
                    code="hole",
                ) from error
            raise
        return page

    def _page_rows(self, pk: int, start: int, max_bytes: int) -> list[tuple[Any, ...]]:
        # From block to block until it is enough: LENGTH() reads the whole body,
        # so a sum over all that follow would read the log at every page. The
        # first is found by MAX(), which is one dive into the index; ORDER BY with
        # LIMIT 1 scans the stream from its beginning.
        rows = self.rows(
            f'WITH RECURSIVE w AS (SELECT "seq_from" AS "at", "seq_from" + "count" '
            f'AS "next", LENGTH("body") AS "size", 1 AS "n" FROM {BLOCK} '
            f'WHERE "stream_id" = %s AND "seq_from" = (SELECT MAX("seq_from") '
            f'FROM {BLOCK} WHERE "stream_id" = %s AND "seq_from" <= %s) '
            f'UNION ALL SELECT b."seq_from", b."seq_from" + b."count", '
            f'w."size" + LENGTH(b."body"), w."n" + 1 FROM w JOIN {BLOCK} b '
            f'ON b."stream_id" = %s AND b."seq_from" = w."next" '
            f'WHERE w."size" < %s AND w."n" < {MAX_BLOCKS}) '
            f'SELECT s."id", "state", "cursor", "epoch", {self.lapsed}, '
            f'b."seq_from", b."body" FROM {STREAM} s LEFT JOIN (w JOIN {BLOCK} b '
            f'ON b."stream_id" = %s AND b."seq_from" = w."at" AND w."next" > %s) '
            f'ON TRUE WHERE s."id" = %s',
            [pk, pk, start, pk, max_bytes, pk, start, pk],
        )
        # Sorted here: the server would write the bodies to a file for it.
        return sorted(rows, key=lambda row: row[-2] or 0)
