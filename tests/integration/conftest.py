"""Fixtures of the integration tests; those of the suite are one folder up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from tests.conftest import RealDb

from .chatting import quiet


@pytest.fixture(params=["default", "postgresql"])
def chat_alias(
    request: pytest.FixtureRequest, real_db: RealDb, settings: Settings
) -> Iterator[str]:
    """A database for conversations, with real commits; used by ``chat``."""
    real_db("default")
    alias: str = real_db(request.param)
    options: dict[str, Any] = {"DATABASE": alias, "TURN_LEASE": 5.0}
    settings.DJANGO_STREAMS = options
    yield alias


@pytest.fixture
async def chat(chat_alias: str) -> AsyncIterator[str]:
    """A chat on each database; fails if a test leaves a task behind."""
    yield chat_alias
    await quiet()
