"""The machine: what it is, what it is doing, and what a process uses of it."""

from __future__ import annotations

import os
import platform
import resource
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

PAGE = os.sysconf("SC_PAGE_SIZE")


def disconnect() -> None:
    """Close the connection that :func:`describe` opened."""
    from django.db import connections

    connections.close_all()


def describe() -> dict[str, Any]:
    """What figures depend on; needs Django set up and PostgreSQL at hand."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": f"{PAGE * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {
            name: version(name)
            for name in ("django", "psycopg", "channels-redis", "uvicorn", "h11")
        },
        "postgresql": _postgresql(),
        "sqlite": sqlite3.sqlite_version,
    }


def _processor() -> str:
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2] for line in facts if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


def _postgresql() -> str:
    from django.db import connections

    with connections["postgresql"].cursor() as cursor:
        cursor.execute("SHOW server_version")
        found = [f"version {cursor.fetchone()[0].split()[0]}"]
        for name in ("fsync", "synchronous_commit", "shared_buffers"):
            cursor.execute(f"SHOW {name}")
            found.append(f"{name} {cursor.fetchone()[0]}")
    return ", ".join(found)


def load() -> float:
    """Load average of the last minute."""
    return os.getloadavg()[0]


def busy_share(seconds: float = 1.0) -> float:
    """Share of all cores in use while this process sleeps for *seconds*."""

    def ticks() -> tuple[int, int]:
        with Path("/proc/stat").open(encoding="ascii") as stat:
            fields = [int(word) for word in stat.readline().split()[1:]]
        idle = fields[3] + fields[4]
        return idle, sum(fields[:8])

    idle_before, all_before = ticks()
    time.sleep(seconds)
    idle, everything = ticks()
    return 1 - (idle - idle_before) / max(1, everything - all_before)


def resident(pid: int) -> int:
    """Bytes of memory that process *pid* has."""
    words = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(words[1]) * PAGE


def settled_resident(pid: int, within: float = 5.0) -> int:
    """The same once it has not changed for half a second, or *within* is over."""
    deadline = time.monotonic() + within
    size, since = resident(pid), time.monotonic()
    while time.monotonic() < min(deadline, since + 0.5):
        time.sleep(0.1)
        if (now := resident(pid)) != size:
            size, since = now, time.monotonic()
    return size


@dataclass(slots=True)
class Share:
    """How much of one core this process used inside :func:`own_share`."""

    value: float = 0.0

    @property
    def note(self) -> str:
        kept = "" if self.value < 0.5 else ", MORE THAN HALF: distrust this figure"
        return f"load generator {self.value:.2f} of a core{kept}"


@contextmanager
def own_share() -> Iterator[Share]:
    share = Share()
    cpu, wall = time.process_time(), time.monotonic()
    yield share
    elapsed = time.monotonic() - wall
    share.value = (time.process_time() - cpu) / elapsed if elapsed else 0.0


def allow_many_files() -> None:
    """Raise this process's limit of open files as far as it may."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
