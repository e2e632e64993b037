"""The cluster of the demo: started, talked to through its balancer, ended."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from demo_project.agents import script
from tests import services
from tests.concurrency.clients import Client
from tests.integration.chatting import RESPONSE, message_text
from tests.sizes import ROOT
from tests.wire.raw import RawTab, stored, visit

pytestmark = pytest.mark.needs("postgresql", "redis", "nginx")

AGENT = "demo-agent"
WITHIN = 60.0


@dataclass
class Cluster:
    url: str
    pids: list[int]
    log: Path

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1)


def postgresql(command: str, name: str) -> None:
    with psycopg.connect(
        host=services.POSTGRESQL_HOST,
        port=services.POSTGRESQL_PORT,
        user=services.POSTGRESQL_USER,
        password=services.POSTGRESQL_PASSWORD or None,
        dbname="postgres",
        autocommit=True,
    ) as connection:
        connection.execute(sql.SQL(command).format(sql.Identifier(name)))


@pytest.fixture(params=["uvicorn", "daphne"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    name = f"ds_cluster_{os.getpid()}"
    env = os.environ | {
        "BUILD_DIR": str(tmp_path / "build"),
        "DEMO_DELAY": "0.005",
        "PGDATABASE": name,
        "PGHOST": services.POSTGRESQL_HOST,
        "PGPORT": str(services.POSTGRESQL_PORT),
        "PGUSER": services.POSTGRESQL_USER,
        "PGPASSWORD": services.POSTGRESQL_PASSWORD,
        "REDIS_URL": services.REDIS_URL,
        "SERVER": request.param,
    }
    for secret in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        env.pop(secret, None)
    # As make gives it where nobody named a port.
    env["PORT"] = ""
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo_project.cluster"],
            cwd=ROOT,
            env=env,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + WITHIN
        while "balancer:" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        said = log.read_text()
        url = re.search(r"http://127\.0\.0\.1:\d+", said)
        numbers = re.search(
            r"servers: (\d+), (\d+)\s+worker: (\d+), balancer: (\d+)", said
        )
        assert url is not None and numbers is not None, said
        yield Cluster(url[0], [int(number) for number in numbers.groups()], log)
        process.send_signal(signal.SIGTERM)
        # Impatience changes nothing: what ends in order goes on to do so.
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
        assert "run_turns: stopped" in log.read_text()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(20)
        postgresql("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def ended(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """Pids that must be gone once the cluster has ended."""
    pids: list[int] = []
    yield pids
    assert pids
    assert [pid for pid in pids if alive(pid)] == []


@pytest.mark.timeout(120)
async def test_replies_survive_reconnects_to_others_and_the_kill_of_their_processes(
    ended: list[int], cluster: Cluster
) -> None:
    ended += cluster.pids
    question = "Which of you is this?"
    cookie = await asyncio.to_thread(visit, cluster, AGENT, "room0")
    clients = [
        Client(lambda: [cluster], cookie, AGENT, f"room{at}", question)
        for at in range(6)
    ]
    await asyncio.gather(*(cut(cluster, client) for client in clients))
    server, _, worker, _ = cluster.pids
    for pid in (server, worker):
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*(client.run() for client in clients))
    replaced = re.findall(r"(\d+) has ended; (\d+) takes", cluster.log.read_text())
    assert {int(old) for old, _ in replaced} == {server, worker}
    ended += [int(new) for _, new in replaced]
    answer = script(question)
    for client in clients:
        assert client.shown in (None, answer)
        messages = await asyncio.to_thread(
            stored, cluster, cookie, client.room, agent=AGENT
        )
        assert [m["role"] for m in messages] == ["user", "assistant"]
        assert message_text(messages[1]) == answer
    assert any(client.shown for client in clients)


async def cut(cluster: Cluster, client: Client) -> None:
    """Ask, see the reply begin, and lose the network."""
    address: object = cluster
    tab = RawTab(
        address,  # type: ignore[arg-type]
        client.cookie,
        agent=client.agent,
        room=client.room,
    )
    async with tab:
        await tab.ask(client.question, client.request_id)
        await tab.until(RESPONSE, id=client.request_id)
        tab.cut()
