"""Where agents are found: routes of sockets and URLs of views."""

from __future__ import annotations

import re
from typing import Any

from django.urls import URLPattern, re_path

from ..turns.agents import register
from .consumer import AIChatConsumer
from .views import get_messages

BASE = "agents"
"""First segment of every address; the official client expects it."""


def agent_routes(*agents: type[AIChatConsumer]) -> list[Any]:
    """Routes for Channels' ``URLRouter``: ``agents/<agent>/<name>``.

    Also lets this process run the agents' turns. Raises ``ValueError`` for two
    agents of one name.
    """
    for agent in agents:
        register(agent.agent_name, agent)
    # Django's re_path expects a view; Channels' router calls an ASGI application.
    route: Any = re_path
    return [route(_address(agent, r"(?:/.*)?\Z"), agent.as_asgi()) for agent in agents]


def agent_urls(*agents: type[AIChatConsumer]) -> list[URLPattern]:
    """URL patterns for ``include()``: ``agents/<agent>/<name>/get-messages``.

    Also lets this process run the agents' turns, as :func:`agent_routes` does.
    """
    for agent in agents:
        register(agent.agent_name, agent)
    return [
        re_path(
            _address(agent, r"(?:/.*)?/get-messages\Z"),
            get_messages,
            {"agent": agent},
            name=f"{agent.agent_name}-messages",
        )
        for agent in agents
    ]


def _address(agent: type[AIChatConsumer], rest: str) -> str:
    return rf"\A{BASE}/{re.escape(agent.agent_name)}/(?P<name>[^/]+){rest}"
