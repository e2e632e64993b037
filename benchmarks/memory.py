"""G8: what the server's process grows by for each reader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from django_streams import Streams, ids
from tests.liveserver import LiveServer

from . import servers
from .crowd import Crowd, request
from .figures import Run
from .machine import allow_many_files, settled_resident
from .replay import read
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import ALIAS, store

WARM_UP = 100
"""Readers before the first reading, so that no cache or pool is counted."""

READERS = 500
UNREAD = 20 * 1024
"""Chunks of 1 KiB: 20 MiB."""

THREADS = 4
"""Readers that read nothing before the first reading: the pool's threads keep what
several pages at once took, whoever reads."""

IDLERS = 8
"""More of them, to divide the noise of one; each on a stream of its own, or they
would share pages."""

Paths = Callable[[int], Iterable[str]]


def measure(group: str, sizes: Sizes) -> Outcome:
    allow_many_files()
    readers = sizes.pick(READERS, 100)
    streams = Streams(using=ALIAS)
    shared = streams.open(ids.new_id())
    runs = [
        Run(
            _per_reader(lambda n: [f"/events/{shared.stream_id}"] * n, readers),
            _per_reader(lambda n: ["/bare"] * n, readers),
        )
        for _ in range(sizes.runs)
    ]
    own = [streams.open(ids.new_id()).stream_id for _ in range(WARM_UP + readers)]
    rest = iter(own)
    alone = _per_reader(lambda n: [f"/events/{next(rest)}" for _ in range(n)], readers)
    note = f"all on one stream; each on a stream of its own {alone:.1f} KiB"
    long = [f"/events/{store(UNREAD, 1024)}" for _ in range(THREADS + IDLERS)]
    unread = [Run(_unread(long)) for _ in range(sizes.runs)]
    return Outcome(
        [
            Measured(f"{group}.idle", runs, [note]),
            Measured(f"{group}.unread", unread),
        ]
    )


def _per_reader(paths: Paths, readers: int) -> float:
    """KiB that each of *readers* idle readers costs a fresh server."""
    with servers.site() as server, Crowd(server.port) as crowd:
        crowd.gather(map(request, paths(WARM_UP)))
        before = settled_resident(server.pid)
        crowd.gather(map(request, paths(readers)))
        return (settled_resident(server.pid) - before) / readers / 1024


def _unread(paths: Sequence[str]) -> float:
    """MiB that the server holds for a reader that reads nothing."""
    with servers.site() as server, Crowd(server.port) as crowd:
        _warm(server, paths[0])
        for path in paths[:THREADS]:
            crowd.ignore(crowd.ask(request(path)))
        # The kernel's buffers fill first; then it must stay as it is.
        before = max(settled_resident(server.pid) for _ in range(3))
        for path in paths[THREADS:]:
            crowd.ignore(crowd.ask(request(path)))
        after = max(settled_resident(server.pid) for _ in range(3))
        return (after - before) / (len(paths) - THREADS) / 2**20


def _warm(server: LiveServer, path: str) -> None:
    """Replay it all, twice, so that pages and buffers have had their memory."""
    for _ in range(2):
        read(server, path, UNREAD)
