"""What a process of a fleet holds: counted from inside of it, and by the servers.

A process that is started with :func:`vital_env` has a name that PostgreSQL and
Redis know it by, and a door through which :func:`vitals` asks it for its tasks.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Self

import redis
from django.db import connections

from tests import services
from tests.settings import RUN

DOOR = "DS_FLEET_DOOR"
"""The Unix socket where a process tells what it holds."""

NAME = "DS_FLEET_NAME"
"""Its name at Redis; at PostgreSQL it is in ``PGAPPNAME``."""

PATIENCE = 20.0
"""Seconds for a process to start, and to answer."""


CONNECTIONS = 7
"""What a process may keep to PostgreSQL: four for its pool, and one each for
group commit, for leases and for the poll."""

MEMBERSHIPS = 4
"""What Redis may send to a process that follows nothing: its own channel and
group, the queue's group and, once it has written, that of stopped writers."""


def vital_env(name: str, folder: Path) -> dict[str, str]:
    """What makes a process countable; *name* is its own in this run."""
    known = _known_as(name)
    return {NAME: known, "PGAPPNAME": known, DOOR: str(folder / name)}


def _known_as(name: str) -> str:
    # Other runs use the same servers.
    return f"ds-{RUN}-{name}"


@dataclass(frozen=True, slots=True)
class Vitals:
    """What one process holds, in numbers."""

    memory: int
    """Bytes that are resident."""
    tasks: int
    """Tasks of all event loops that have not ended."""
    threads: int
    """Told, not judged: pools start them when they are first needed."""
    files: int
    """Open files, sockets among them."""
    database: int
    """Connections to PostgreSQL, as it counts them."""
    redis: int
    """Connections to Redis, as it counts them."""
    members: int
    """Groups and channels that Redis sends to it."""

    def least(self, other: Self) -> Self:
        """Of each number the smaller one."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return type(self)(*map(min, pairs))

    def more_than(self, other: Vitals, memory: float) -> dict[str, tuple[int, int]]:
        """What is more than *other* has, with both numbers; of memory, more by
        the share *memory*. What every process may keep for itself is not more."""
        limits = asdict(other) | {
            "memory": other.memory * (1 + memory),
            "threads": math.inf,
            "files": other.files + CONNECTIONS,
            "database": max(other.database, CONNECTIONS),
            "members": max(other.members, MEMBERSHIPS),
        }
        return {
            name: (getattr(other, name), held)
            for name, held in asdict(self).items()
            if held > limits[name]
        }


def vitals(name: str, pid: int, folder: Path) -> Vitals:
    """Of the process *pid*, which was started with this name and folder."""
    tasks: dict[str, int] = ask(folder / name)["tasks"]
    with redis.Redis.from_url(services.REDIS_URL) as client:
        clients = [
            one for one in client.client_list() if one["name"] == _known_as(name)
        ]
    with connections["postgresql"].cursor() as cursor:
        query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
        cursor.execute(query, [_known_as(name)])
        (database,) = cursor.fetchone()
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    return Vitals(
        memory=pages * os.sysconf("SC_PAGE_SIZE"),
        tasks=sum(tasks.values()),
        threads=len(list((process / "task").iterdir())),
        files=len(list((process / "fd").iterdir())),
        database=database,
        redis=len(clients),
        members=sum(int(one["sub"]) for one in clients),
    )


def floors(pids: Mapping[str, int], folder: Path, seconds: float) -> dict[str, Vitals]:
    """Of each process, by its name, the least of each number in so many seconds:
    what comes and goes is not held."""
    end = time.monotonic() + seconds
    least = {name: vitals(name, pid, folder) for name, pid in pids.items()}
    while time.monotonic() < end:
        time.sleep(0.1)
        for name, pid in pids.items():
            least[name] = least[name].least(vitals(name, pid, folder))
    return least


def ask(door: Path) -> dict[str, dict[str, int]]:
    """What the process behind *door* tells; it may still be starting."""
    end = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(PATIENCE)
            try:
                line.connect(str(door))
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < end, f"nobody answers at {door}"
                time.sleep(0.05)
                continue
            with line.makefile() as said:
                told: dict[str, dict[str, int]] = json.load(said)
                return told


def table(rows: Mapping[str, Vitals]) -> str:
    """A line for each, under the names of the numbers; memory in MB."""
    names = [field.name for field in fields(Vitals)]
    lines = [["", *names]]
    for name, row in rows.items():
        memory, *others = astuple(row)
        lines.append([name, f"{memory / 1e6:.1f}", *map(str, others)])
    return "\n".join("".join(f"{cell:>12}" for cell in line) for line in lines)


# In the process itself


def open_door() -> None:
    """Answer at the door that the environment names, if it names one."""
    if path := os.environ.get(DOOR):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()
        threading.Thread(target=_answer, args=(listener,), daemon=True).start()


def _answer(listener: socket.socket) -> None:
    while True:
        line, _ = listener.accept()
        with line:
            # What only waits for the collector is not held.
            gc.collect()
            line.sendall(json.dumps({"tasks": _tasks()}).encode())


def _tasks() -> dict[str, int]:
    """How many tasks of each coroutine there are, in whichever loop."""
    found = [one for one in gc.get_objects() if issubclass(type(one), asyncio.Task)]
    names = [one.get_coro().__qualname__ for one in found if not one.done()]
    return Counter(names)
