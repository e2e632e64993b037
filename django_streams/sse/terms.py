"""How one response is served: values, no behaviour."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Guard:
    """Asked every *interval* seconds whether the response may go on."""

    allowed: Callable[[], Awaitable[bool]]
    interval: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Times are seconds; None or 0 is off."""

    batch_size: int = 100
    heartbeat: float = 0
    """Silence after which a comment is sent."""
    max_age: float | None = None
    """The response ends in order after this long."""
    send_timeout: float = 0
    """A client that takes nothing for this long loses the response."""
    pace: int | None = None
    """Bytes a second, where the server takes whatever it is given."""
    stop: asyncio.Event | None = None
    guard: Guard | None = None
