"""Agents that say what a test tells them to, when it tells them.

The text of a user's message names a script: a file to which the test appends
items while the turn runs, in whatever process that is. Turns that answer the
same message (regenerated, continued, taken over) go on reading where the last
one ended. An item is a line of JSON:

- a string is text, an object with a ``type`` a chunk, ``null`` the end;
- ``{"words": 30, "pause": 0.01}`` is as many numbered words;
- ``{"raise": "why"}`` fails in public, ``{"return": ...}``, as the first, is
  what the handler returns; ``{"tell": "body"}`` says that attribute of the turn.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from django.urls import include, path

from django_streams.chat import AIChatConsumer, Call, agent_urls, callable, tool
from django_streams.exceptions import PublicError
from django_streams.turns.turn import Turn

SCRIPTS = "DS_WIRE_SCRIPTS"
"""The environment variable that names the folder of scripts."""

AGENTS_PREFIX = "DS_WIRE_PREFIX"
"""The environment variable that goes before the agents' names. A process takes
over turns of all agents that it knows: servers that share a database with others
and are to be alone with their turns know their agents under other names."""

_PREFIX = os.environ.get(AGENTS_PREFIX, "")


def words(count: int) -> str:
    """What ``{"words": count}`` says."""
    return "".join(f"w{at} " for at in range(count))


class Reading:
    """A script's items, each read once whoever reads."""

    def __init__(self, name: str) -> None:
        self._file = Path(os.environ[SCRIPTS]) / name
        self._mark = self._file.with_suffix(".read")

    def begin(self) -> None:
        """Say which process runs the turn."""
        self._file.with_suffix(".pid").write_text(str(os.getpid()))

    async def next(self) -> Any:
        while True:
            done = int(self._mark.read_text()) if self._mark.exists() else 0
            lines = self._file.read_text().splitlines() if self._file.exists() else []
            if len(lines) > done:
                self._mark.write_text(str(done + 1))
                return json.loads(lines[done])
            await asyncio.sleep(0.01)


def double(q: int) -> int:
    return 2 * q


class Scripted(AIChatConsumer):
    agent_name = f"{_PREFIX}scripted"
    allow_anonymous = True
    tools = (double, tool(name="triple", needs_approval=True)(lambda q: 3 * q))

    def get_initial_state(self) -> Any:
        return {"count": 0}

    def validate_state(self, state: Any, user: Any) -> None:
        if state["count"] < 0:
            raise PublicError("below zero")

    @callable
    def add(self, a: int, b: int) -> int:
        return a + b

    @callable
    async def count(self, to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @callable
    async def increment(self, call: Call) -> None:
        state = await call.get_state() or {"count": 0}
        await call.set_state({"count": state["count"] + 1})

    async def on_chat_message(self, turn: Turn) -> Any:
        script = Reading(turn.text)
        script.begin()
        first = await script.next()
        if isinstance(first, dict) and "return" in first:
            return first["return"]
        return self._play(turn, script, first)

    async def _play(
        self, turn: Turn, script: Reading, item: Any
    ) -> AsyncIterator[str | dict[str, Any]]:
        while item is not None:
            match item:
                case {"words": count}:
                    for at in range(count):
                        yield f"w{at} "
                        await asyncio.sleep(item.get("pause", 0))
                case {"raise": why}:
                    raise PublicError(why)
                case {"tell": name}:
                    yield json.dumps(getattr(turn, name))
                case _:
                    yield item
            item = await script.next()


class Again(Scripted):
    """Says all of it again when it was interrupted."""

    agent_name = f"{_PREFIX}again"
    on_interrupted = "restart"


class Apart(Scripted):
    """Its turns run in no server."""

    agent_name = f"{_PREFIX}apart"
    runner = "worker"


class ApartAgain(Again):
    agent_name = f"{_PREFIX}apart-again"
    runner = "worker"


AGENTS = (Scripted, Again, Apart, ApartAgain)

urlpatterns = [path("", include(agent_urls(*AGENTS)))]
