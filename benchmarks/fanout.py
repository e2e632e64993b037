"""G6: from before an append to its receipt by 500 readers, and other numbers."""

from __future__ import annotations

from django_streams import ids
from tests.liveserver import LiveServer

from . import servers
from .crowd import Crowd, request
from .figures import Run, quantile
from .machine import Share, allow_many_files, own_share
from .results import Measured, Outcome, Series
from .sizes import Sizes

READERS = 500
SWEEP = (1, 10, 50, 100, 250, 500, 1000)
INTERVAL = 0.1
"""Seconds between events: each has arrived everywhere before the next."""


def measure(group: str, sizes: Sizes) -> Outcome:
    allow_many_files()
    readers, events = sizes.pick(READERS, 100), sizes.pick(40, 10)
    runs, shares = [], []
    with servers.site() as site, servers.bare() as bare:
        for _ in range(sizes.runs):
            floor, _ = _bare(bare, readers, events)
            figure, share = _site(site, readers, events)
            runs.append(Run(figure, floor))
            shares.append(share.value)
        lines: dict[str, list[tuple[float, float]]] = {"floor": [], "sse_response": []}
        for count in sizes.pick(SWEEP, (1, 50)):
            lines["floor"].append((count, _bare(bare, count, events // 2)[0]))
            lines["sse_response"].append((count, _site(site, count, events // 2)[0]))
    return Outcome(
        [Measured(group, runs, [Share(max(shares)).note])],
        [Series("readers", label, points) for label, points in lines.items()],
    )


def _site(site: LiveServer, readers: int, events: int) -> tuple[float, Share]:
    stream_id = ids.new_id()
    servers.get(site, f"/open/{stream_id}")
    return _latency(
        site, f"/events/{stream_id}", f"/produce/{stream_id}", readers, events
    )


def _bare(bare: LiveServer, readers: int, events: int) -> tuple[float, Share]:
    return _latency(bare, "/events", "/produce", readers, events)


def _latency(
    server: LiveServer, path: str, produce: str, readers: int, events: int
) -> tuple[float, Share]:
    """The median of all receipts in milliseconds, and the generator's own work."""
    with Crowd(server.port) as crowd:
        crowd.gather([request(path)] * readers)
        servers.get(server, f"{produce}?events={events}&interval={INTERVAL}")
        with own_share() as share:
            late = crowd.stamps(readers * events)
    return 1000 * quantile(late, 0.5), share
