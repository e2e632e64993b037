"""G11, G12: from what an agent says to what those who watch are sent."""

from __future__ import annotations

import asyncio
import re
import time

from django_streams import Streams, ids
from tests.liveserver import LiveServer

from . import servers
from .crowd import Crowd
from .figures import Run, quantile
from .machine import Share, allow_many_files, own_share
from .payload import SAID, stamped
from .results import Measured, Outcome
from .sizes import Sizes
from .sockets import ClientSocket, ask, frame, upgrade
from .stored import ALIAS

SOCKETS = 200
INTERVAL = 0.05
"""Seconds between words: each has arrived everywhere before the next."""
PAUSE = 1.0
"""Seconds in which all have begun to follow the reply."""

STORED = 1_250
WHOLE = 3_000
JOINERS = 5
"""Late joiners a run, one after the other."""

TRANSCRIPT = b'"cf_agent_chat_messages"'
_REPLAYED = re.compile(rb'"replay":true,"seq":(\d+),')


def room() -> str:
    """The address of a conversation of its own."""
    return f"/agents/paced/{ids.new_id()}"


def measure(group: str, sizes: Sizes) -> Outcome:
    allow_many_files()
    return _fan_out(group, sizes) if group == "G11" else _late(group, sizes)


# G11


def _fan_out(group: str, sizes: Sizes) -> Outcome:
    many, events = sizes.pick(SOCKETS, 40), sizes.pick(40, 10)
    measured = []
    with servers.chat() as site, servers.bare_chat() as bare:
        for name, count in (("one", 1), ("many", many)):
            runs, shares, appends = [], [], []
            for _ in range(sizes.runs):
                floor, _ = _latency(bare, "/", b"ready", count, events)
                figure, share = _latency(site, room(), TRANSCRIPT, count, events)
                appends.append(asyncio.run(_append(events)))
                runs.append(Run(figure, floor))
                shares.append(share.value)
            alone = f"an append alone, awaited: {quantile(appends, 0.5):.2f} ms"
            notes = [Share(max(shares)).note, alone]
            measured.append(Measured(f"{group}.{name}", runs, notes))
    return Outcome(measured)


def _latency(
    server: LiveServer, path: str, ready: bytes, sockets: int, events: int
) -> tuple[float, Share]:
    """The median of all receipts in milliseconds, and the generator's own work."""
    wanted = {"events": events, "interval": INTERVAL, "pause": PAUSE}
    request = wanted if path == "/" else ask(ids.new_id(), **wanted)
    with Crowd(server.port) as crowd:
        first, *_ = crowd.gather([upgrade(path)] * sockets, ready)
        crowd.tell(first, frame(request))
        with own_share() as share:
            late = crowd.stamps(sockets * events, SAID)
    return 1000 * quantile(late, 0.5), share


async def _append(events: int) -> float:
    """The median of appends at the same pace, in milliseconds."""
    seconds = []
    async with await Streams(using=ALIAS).aopen(ids.new_id()) as writer:
        for number in range(events):
            await asyncio.sleep(INTERVAL)
            start = time.monotonic()
            await writer.aappend(stamped(start, number))
            seconds.append(time.monotonic() - start)
    return 1000 * quantile(seconds, 0.5)


# G12


def _late(group: str, sizes: Sizes) -> Outcome:
    stored, whole = sizes.pick((STORED, WHOLE), (100, 300))
    runs, slowest = [], 0.0
    with servers.chat() as site:
        for _ in range(sizes.runs):
            seconds = _join(site, stored, whole)
            runs.append(Run(1000 * quantile(seconds, 0.5)))
            slowest = max(slowest, *seconds)
    note = f"{JOINERS} joiners a run; the slowest of all {1000 * slowest:.0f} ms"
    return Outcome([Measured(group, runs, [note])])


def _join(site: LiveServer, stored: int, whole: int) -> list[float]:
    """Seconds from each probe to the end of its replay, in the middle of a reply."""
    path, request_id = room(), ids.new_id()
    seconds = []
    with ClientSocket(site.port, path) as asker:
        asker.until(TRANSCRIPT)
        rest = whole - stored
        asker.send(ask(request_id, at_once=stored, events=rest, interval=0.01))
        asker.until(b'"seq":%d,' % (stored - 1))
        for number in range(JOINERS):
            with ClientSocket(site.port, path) as joiner:
                joiner.until(b'"cf_agent_stream_resuming"')
                start = time.perf_counter()
                probe = f"probe-{number}"
                joiner.send(
                    {"type": "cf_agent_stream_resume_request", "probeId": probe}
                )
                joiner.until(b'"probeId":"%s"' % probe.encode())
                joiner.send({"type": "cf_agent_stream_resume_ack", "id": request_id})
                replay = joiner.until(b'"replayComplete":true')
                seconds.append(time.perf_counter() - start)
            seqs = [int(seq) for seq in _REPLAYED.findall(replay)]
            if len(seqs) < stored or seqs != list(range(len(seqs))):
                raise RuntimeError(f"{len(seqs)} chunks were replayed, or not in order")
        asker.send({"type": "cf_agent_chat_request_cancel", "id": request_id})
        asker.until(b'"done":true')
    return seconds
