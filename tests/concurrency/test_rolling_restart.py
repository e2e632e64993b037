"""A deploy: every process is replaced while replies are being written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.conftest import RealDb
from tests.integration.chatting import message_text
from tests.liveserver import LiveServer, Server
from tests.wire.raw import stored, visit

from .clients import Client
from .fleet import WorkerProcess, fleet_env, start_servers, start_workers
from .fleet_site import words

CLIENTS = 50
COUNT, PAUSE = 40, 0.1
"""Words of a reply, and seconds between two of them."""

pytestmark = pytest.mark.needs("postgresql", "redis")


@dataclass
class Fleet:
    """What runs before the deploy, and what is ready to take over."""

    old: list[LiveServer]
    new: list[LiveServer]
    worker: WorkerProcess
    next_worker: WorkerProcess
    serving: list[LiveServer] = field(default_factory=list)


@pytest.fixture(params=["uvicorn", "daphne"])
def fleet(request: pytest.FixtureRequest, real_db: RealDb) -> Iterator[Fleet]:
    for alias in ("default", "postgresql"):
        real_db(alias)
    # A lease that no part of the test outlasts: nothing is left to lapse.
    env = fleet_env("postgresql", layer="redis", lease=60.0)
    server: Server = request.param
    with ExitStack() as stack:
        # In pairs: all at once would wait for each other longer than for a start.
        workers = start_workers(env, ["--grace", "0.5"], 2, stack)
        servers = []
        for _ in range(2):
            servers += start_servers(env, server, 2, stack)
        made = Fleet(servers[:2], servers[2:], workers[0], workers[1])
        made.serving = list(made.old)
        yield made
        for one in made.new:
            one.stop()
        logs = "".join(
            [*(one.log() for one in servers), *(one.log() for one in workers)]
        )
    assert "Traceback" not in logs, logs


@pytest.mark.timeout(120)
async def test_a_deploy_in_the_middle_of_fifty_replies_changes_none_of_them(
    fleet: Fleet,
) -> None:
    cookie = await asyncio.to_thread(visit, fleet.old[0], "counting")
    clients = [
        Client(
            lambda: fleet.serving, cookie, "counting", f"room{at}", f"{COUNT} {PAUSE}"
        )
        for at in range(CLIENTS)
    ]
    running = [asyncio.create_task(client.run()) for client in clients]
    while sum(client.connections for client in clients) < CLIENTS:
        await asyncio.sleep(0.05)
    await asyncio.sleep(COUNT * PAUSE / 4)
    for old, new in zip(fleet.old, fleet.new, strict=True):
        fleet.serving.remove(old)
        fleet.serving.append(new)
        await asyncio.to_thread(old.stop)
    assert await asyncio.to_thread(fleet.worker.stop) == 0
    async with asyncio.timeout(60):
        await asyncio.gather(*running)
    assert max(client.connections for client in clients) > 1
    assert any(client.shown for client in clients)
    for client in clients:
        assert client.shown in (None, words(COUNT)), client
        messages = await asyncio.to_thread(
            stored, fleet.new[0], cookie, client.room, agent="counting"
        )
        assert [m["role"] for m in messages] == ["user", "assistant"]
        assert message_text(messages[1]) == words(COUNT)
