"""G13: 200 readers are cut at once and come back with their Last-Event-ID."""

from __future__ import annotations

import re
import time

from tests.liveserver import LiveServer

from . import servers
from .crowd import UP_TO_DATE, Crowd, LostReader, request
from .figures import Run
from .machine import Share, allow_many_files, own_share
from .payload import CHUNK
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import store_live

READERS = 200
COUNT = 5_000

_SEQ = re.compile(rb"^id: (\d+)\ndata: ", re.MULTILINE)


def measure(group: str, sizes: Sizes) -> Outcome:
    allow_many_files()
    readers, count = sizes.pick(READERS, 40), sizes.pick(COUNT, 1_000)
    runs, shares = [], []
    with servers.site() as site, servers.bare() as bare:
        ours = f"/events/{store_live(count, CHUNK)}"
        theirs = f"/resume?count={count}"
        _storm(bare, theirs, 2, count)
        for _ in range(sizes.runs):
            floor, _ = _storm(bare, theirs, readers, count)
            figure, share = _storm(site, ours, readers, count)
            runs.append(Run(figure, floor))
            shares.append(share.value)
    return Outcome([Measured(group, runs, [Share(max(shares)).note])])


def _storm(
    server: LiveServer, path: str, readers: int, count: int
) -> tuple[float, Share]:
    """Seconds from the first reconnect until the last reader is up to date."""
    middle = b"id: %d\n" % (count // 2)
    with Crowd(server.port) as crowd:
        # Each has read up to the middle when all connections end.
        seen = [
            last_seq(data) for data in crowd.read_to([request(path)] * readers, middle)
        ]
    again = [request(path, f"Last-Event-ID: {last}") for last in seen]
    with Crowd(server.port) as crowd, own_share() as share:
        start = time.perf_counter()
        got = crowd.collect(again, UP_TO_DATE)
        elapsed = time.perf_counter() - start
    for last, data in zip(seen, got, strict=True):
        if seqs(data) != list(range(last + 1, count)):
            raise LostReader(f"a reader at {last} did not get the rest, once, in order")
    return elapsed, share


def seqs(data: bytes) -> list[int]:
    return [int(seq) for seq in _SEQ.findall(data)]


def last_seq(data: bytes) -> int:
    """The seq of the last event that arrived whole."""
    whole = data[: data.rindex(b"\n\n")]
    return seqs(whole)[-1]
