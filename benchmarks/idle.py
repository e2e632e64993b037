"""G9: what 400 viewers, to whom nothing comes, ask of the database."""

from __future__ import annotations

import time
from collections import Counter

from django.db import connections

from django_streams import Streams, ids

from . import servers
from .crowd import Crowd, request
from .figures import Run
from .machine import allow_many_files
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import ALIAS

VIEWERS = 400
REST = 5.0
"""Seconds after the last viewer came: polls have slowed down by then."""


def measure(group: str, sizes: Sizes) -> Outcome:
    allow_many_files()
    viewers, window = sizes.pick(VIEWERS, 50), sizes.pick(10.0, 3.0)
    streams = Streams(using=ALIAS)
    # Each on a stream of its own: nothing is shared but the poll.
    paths = [f"/events/{streams.open(ids.new_id()).stream_id}" for _ in range(viewers)]
    asked, opened, kinds = [], [], Counter[str]()
    with servers.site() as site, Crowd(site.port) as crowd:
        crowd.gather(map(request, paths))
        opened.append(Run(_connections()))
        time.sleep(sizes.pick(REST, 2.0))
        servers.get(site, "/queries")
        for _ in range(sizes.runs):
            transactions, start = _transactions(), time.monotonic()
            time.sleep(window)
            counted = Counter[str](servers.get(site, "/queries"))
            elapsed = time.monotonic() - start
            asked.append(Run(counted.total() / elapsed))
            kinds += counted
            opened.append(Run(_connections()))
            server_saw = (_transactions() - transactions) / elapsed
    most = ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common(3))
    notes = [f"{most}; the server itself counted {server_saw:.1f} a second"]
    return Outcome(
        [
            Measured(f"{group}.queries", asked, notes),
            Measured(f"{group}.connections", opened),
        ]
    )


def _connections() -> int:
    """Sessions of the site."""
    return _number(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        f" AND application_name = '{servers.NAME}'"
    )


def _transactions() -> int:
    """Transactions in our database so far, the questions of this module too."""
    return _number(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()"
    )


def _number(statement: str) -> int:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(statement)
        return int(cursor.fetchone()[0])
