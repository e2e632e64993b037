"""G5: write-ahead log of PostgreSQL per byte of payload, after a checkpoint."""

from __future__ import annotations

import time

from django.db import connections
from django.test.utils import override_settings

from django_streams import Streams, ids

from . import payload
from .figures import Run
from .results import Measured, Outcome
from .sizes import Sizes

ALIAS = "postgresql"
PATIENCE = 60.0
"""The log is the whole server's: a run beside other traffic is repeated, until
the goal has taken this many seconds."""


def measure(group: str, sizes: Sizes) -> Outcome:
    count = sizes.pick({10: 20_000, 1: 5_000}, {10: 2_000, 1: 500})
    measured = []
    until = time.monotonic() + PATIENCE
    for name, per_block in (("ten", 10), ("one", 1)):
        for tail, merged in (("", False), ("-merged", True)):
            runs, disturbed = [], 0
            for _ in range(sizes.runs):
                figure, others = _undisturbed(
                    count[per_block], per_block, merged, until
                )
                runs.append(Run(figure))
                disturbed += others > 0
            notes = [f"{disturbed} of {len(runs)} runs beside other traffic"]
            measured.append(
                Measured(f"{group}.{name}{tail}", runs, notes if disturbed else ())
            )
    return Outcome(measured)


def _undisturbed(
    count: int, per_block: int, merged: bool, until: float
) -> tuple[float, int]:
    """The figure of a run, and how many transactions others had meanwhile."""
    tried: list[tuple[float, int]] = []
    while not tried or (tried[-1][1] and time.monotonic() < until):
        before = _others()
        # Without rollup: no block of small ones is ever full.
        options = {} if merged else {"BLOCK_BYTES": 1 << 30}
        with override_settings(DJANGO_STREAMS=options):
            figure = _logged(count, per_block, settle=merged)
        tried.append((figure, _others() - before))
    return min(tried, key=lambda attempt: attempt[1])


def _logged(count: int, per_block: int, *, settle: bool) -> float:
    """Bytes of log for each byte of chunks."""
    chunks = payload.chunks(count)
    writer = Streams(using=ALIAS).open(ids.new_id())
    # Or a vacuum comes by itself, and this run pays for what others left.
    _ask("VACUUM django_streams_chunkblock, django_streams_stream")
    _ask("CHECKPOINT")
    start = _ask("SELECT pg_current_wal_insert_lsn()")
    for first in range(0, count, per_block):
        writer.extend(chunks[first : first + per_block])
    if settle:
        writer.close()
    written = _ask(f"SELECT pg_current_wal_insert_lsn() - '{start}'::pg_lsn")
    if not settle:
        writer.close()
    return float(written) / (count * payload.CHUNK)


def _others() -> int:
    """Transactions so far in the databases that are not ours."""
    _ask("SELECT pg_stat_clear_snapshot()")
    return int(
        _ask(
            "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database"
            " WHERE datname <> current_database()"
        )
    )


def _ask(statement: str) -> str:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(statement)
        return "" if cursor.description is None else str(cursor.fetchone()[0])
