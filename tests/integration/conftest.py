"""Fixtures of the integration tests; those of the suite are one folder up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from django_streams.turns.agents import register
from tests.conftest import RealDb

from .chatting import quiet
from .handles import OWNER, Doors


@pytest.fixture(params=["default", "postgresql"])
def chat_alias(
    request: pytest.FixtureRequest, real_db: RealDb, settings: Settings
) -> Iterator[str]:
    """A database for conversations, with real commits; used by ``chat``."""
    real_db("default")
    alias: str = real_db(request.param)
    # Tests that leave lapsed turns behind want to be the ones who find them.
    options: dict[str, Any] = {
        "DATABASE": alias,
        "TURN_LEASE": 5.0,
        "SWEEP_INTERVAL": 3600.0,
    }
    settings.DJANGO_STREAMS = options
    yield alias


@pytest.fixture
async def chat(chat_alias: str) -> AsyncIterator[str]:
    """A chat on each database; fails if a test leaves a task behind."""
    yield chat_alias
    await quiet()


@pytest.fixture(params=[False, True], ids=["async", "sync"])
def doors(request: pytest.FixtureRequest) -> Callable[..., Any]:
    def make(agent: Any, owner: Any = OWNER) -> Any:
        register(agent.agent_name, agent)
        handle = agent.conversation("room", owner=owner)
        return Doors(handle, blocking=request.param)

    return make
