"""The short form of ``make soak``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.conftest import RealDb

from .soak import Soak, violations

pytestmark = pytest.mark.needs("postgresql", "redis")


@pytest.fixture
def soak(real_db: RealDb) -> Iterator[Soak]:
    for alias in ("default", "postgresql"):
        real_db(alias)
    with ExitStack() as stack:
        made = Soak(4.0, conversations=10, stack=stack, rounds=2)
        made.kill_every, made.look = 0.7, 2.0
        made.think, made.pause = 1.5, 0.1
        made.lease, made.sweep = 1.0, 0.2
        made.start()
        yield made


@pytest.mark.timeout(150)
def test_whatever_is_killed_the_rules_hold_and_every_reply_is_exact(
    soak: Soak,
) -> None:
    soak.run()
    assert soak.replies and soak.kills
    assert violations(soak) == []
