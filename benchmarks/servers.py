"""Both sites under uvicorn, each a process of its own, and asking them things."""

from __future__ import annotations

import http.client
import json
from typing import Any

from tests.liveserver import LiveServer

NAME = "ds-bench-site"
"""The measured site's sessions call themselves so in ``pg_stat_activity``."""

_QUIET = ("log_level=warning", "access_log=0")


def site() -> LiveServer:
    """The measured site; use it in ``with``."""
    return LiveServer(
        "benchmarks.asgi:application", options=_QUIET, env={"PGAPPNAME": NAME}
    )


def bare() -> LiveServer:
    """The floor."""
    return LiveServer("benchmarks.bare:application", options=_QUIET)


def chat(env: dict[str, str] | None = None) -> LiveServer:
    """The measured chat; *env* may name a Redis."""
    return LiveServer(
        "benchmarks.chat_site:application",
        options=_QUIET,
        env={"PGAPPNAME": NAME} | (env or {}),
    )


def bare_chat() -> LiveServer:
    """Its floor."""
    return LiveServer("benchmarks.chat_bare:application", options=_QUIET)


def get(server: LiveServer, path: str) -> Any:
    """Ask for *path*; the JSON of the answer, None for an empty one."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path} answered {answer.status}\n{server.log()}")
        return json.loads(body) if body else None
    finally:
        connection.close()
