"""G16: a turn that runs in one process is stopped by a client of another."""

from __future__ import annotations

import time
from collections.abc import Mapping

from django_streams import ids
from tests.own_redis import OwnRedis

from . import servers
from .chat import TRANSCRIPT, room
from .figures import Run
from .results import Measured, Outcome
from .sizes import Sizes
from .sockets import ClientSocket, ask

TALKS: Mapping[str, float] = {"events": 3_000, "interval": 0.01}
SILENT: Mapping[str, float] = {
    "at_once": 1,
    "events": 0,
    "interval": 0,
    "silence": 60,
}
_DONE = b'"done":true'


def measure(group: str, sizes: Sizes) -> Outcome:
    stops = sizes.pick(10, 2)
    runs = []
    with OwnRedis() as redis:
        env = {"BENCH_REDIS": redis.url}
        with servers.chat(env) as here, servers.chat(env) as there:
            for _ in range(sizes.runs):
                path = room()
                with (
                    ClientSocket(here.port, path) as asker,
                    ClientSocket(there.port, path) as stopper,
                ):
                    asker.until(TRANSCRIPT)
                    stopper.until(TRANSCRIPT)
                    late = [
                        _stop(asker, stopper, SILENT if at % 2 else TALKS)
                        for at in range(stops)
                    ]
                runs.append(Run(max(late)))
    note = f"{stops} stops a run, every second one of a silent model; the latest"
    return Outcome([Measured(group, runs, [note])])


def _stop(
    asker: ClientSocket, stopper: ClientSocket, wanted: Mapping[str, float]
) -> float:
    """Seconds from the request until both clients have the terminal frame."""
    request_id = ids.new_id()
    asker.send(ask(request_id, **wanted))
    # Both see it being said.
    for one in (asker, stopper):
        one.until(b'"id":"%s","done":false,"seq":2,' % request_id.encode())
    start = time.perf_counter()
    stopper.send({"type": "cf_agent_chat_request_cancel", "id": request_id})
    stopper.until(_DONE)
    asker.until(_DONE)
    return time.perf_counter() - start
