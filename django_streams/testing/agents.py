"""Lets a test's agent take the place of the project's agent of that name."""

from __future__ import annotations

import sys

from ..chat import AIChatConsumer
from ..turns import agents
from ..turns.agents import Make

_lent: list[tuple[str, Make | None]] = []


def lend(agent: type[AIChatConsumer]) -> None:
    """Register *agent*, until :func:`take_back`, whoever has its name."""
    name = agent.agent_name
    before = agents.replace(name, agent)
    if before is agent or (before is None and _importable(agent)):
        # It is the project's own, and its routes may be imported only once.
        return
    _lent.append((name, before))


def take_back() -> None:
    """Register again what was registered before."""
    while _lent:
        agents.replace(*_lent.pop())


def _importable(agent: type) -> bool:
    found: object = sys.modules.get(agent.__module__)
    for name in agent.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is agent
