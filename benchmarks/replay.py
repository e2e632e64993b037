"""G7: the replay of a long settled stream to one reader."""

from __future__ import annotations

import http.client
import re
import socket
import time
from dataclasses import dataclass

from tests.liveserver import LiveServer

from . import bare, servers
from .crowd import LostReader, request
from .figures import Run
from .machine import Share, own_share
from .results import Measured, Outcome
from .sizes import Sizes
from .stored import store

SIZE = 1000
COUNT = 50_000
READ = 1 << 20

_EVENT = b"{"
"""In every event exactly once: the texts of the chunks are plain letters."""

_EXTRA = re.compile(rb"retry: \d+\n|event: [a-z-]+\ndata: {}\n\n|id: \d+\n(?=event)")
"""What an event stream holds beside its chunks."""


@dataclass(frozen=True, slots=True)
class Replay:
    rate: float
    """MB/s, from the request to the last byte."""
    first: float
    """Seconds from connecting to the first event."""
    share: Share


def measure(group: str, sizes: Sizes) -> Outcome:
    count = sizes.pick(COUNT, 5_000)
    rates, firsts, shares = [], [], []
    with servers.site() as site, servers.bare() as floor:
        ours = f"/events/{store(count, SIZE)}"
        theirs = f"/replay?count={count}&size={SIZE}"
        for server, path in ((site, ours), (floor, theirs)):
            _check(server, path, count)
        for _ in range(sizes.runs):
            below, here = read(floor, theirs, count), read(site, ours, count)
            rates.append(Run(here.rate, below.rate))
            firsts.append(Run(1000 * here.first, 1000 * below.first))
            shares.append(here.share.value)
    notes = [Share(max(shares)).note]
    return Outcome(
        [Measured(f"{group}.rate", rates, notes), Measured(f"{group}.first", firsts)]
    )


def read(server: LiveServer, path: str, count: int) -> Replay:
    """Read one response of *count* chunks to its end, counting them."""
    buffer = bytearray(READ)
    with own_share() as share:
        start = time.perf_counter()
        with socket.create_connection(("127.0.0.1", server.port), 60) as one:
            one.sendall(request(path, "Connection: close"))
            size, events, first, end = 0, 0, 0.0, b""
            while got := one.recv_into(buffer):
                events += buffer.count(_EVENT, 0, got)
                if events and not first:
                    first = time.perf_counter() - start
                size += got
                end = (end + buffer[max(0, got - 64) : got])[-64:]
        elapsed = time.perf_counter() - start
    if events < count or b"event: done" not in end:
        raise LostReader(f"a replay ended after {events} events with {end!r}")
    return Replay(size / elapsed / 1e6, first, share)


def _check(server: LiveServer, path: str, count: int) -> None:
    """That every chunk comes, and nothing else; untimed, it warms the server up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    if _EXTRA.sub(b"", body) != b"".join(bare.writes(count, SIZE)):
        raise LostReader(f"{path} is not the stream that was stored")
