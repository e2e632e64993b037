"""G17: how long an append takes while the same process replays 20 MiB."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from django_streams import ids
from tests.liveserver import LiveServer

from . import servers
from .figures import Run
from .replay import read
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import store

CHUNKS = 20 * 1024
SIZE = 1024


def measure(group: str, sizes: Sizes) -> Outcome:
    runs, counts = [], []
    with servers.site() as site:
        count = sizes.pick(CHUNKS, 2048)
        path = f"/events/{store(count, SIZE)}"
        writer = ids.new_id()
        servers.get(site, f"/open/{writer}")
        read(site, path, count)
        for _ in range(sizes.runs):
            start = time.monotonic()
            longest, count = _longest(site, writer, partial(read, site, path, count))
            pause = partial(time.sleep, time.monotonic() - start)
            runs.append(Run(longest, _longest(site, writer, pause)[0]))
            counts.append(count)
    note = f"{min(counts)} to {max(counts)} appends beside it; the floor is the same "
    return Outcome([Measured(group, runs, [f"{note}without a replay"])])


def _longest(
    site: LiveServer, writer: str, meanwhile: Callable[[], object]
) -> tuple[float, int]:
    """Milliseconds of the longest append while *meanwhile* runs, and how many."""
    servers.get(site, f"/append/{writer}/on")
    meanwhile()
    answer = servers.get(site, f"/append/{writer}/off")
    return 1000 * answer["longest"], answer["count"]
