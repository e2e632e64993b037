"""How fast replies go out where the server takes whatever it is given."""

from __future__ import annotations

import asyncio

from .. import conf
from ..sse.response import server_buffers

_BURST = 0.1
"""Seconds of the pace that go out at once, so live chunks are never held."""


class Pace:
    """Keeps what one connection is sent within ``SSE_PACE`` bytes a second.

    Under a server that pushes back it does nothing: there the send itself waits
    for the client.
    """

    def __init__(self) -> None:
        self._rate = conf.get().SSE_PACE if server_buffers() else None
        self._paid_until = 0.0

    @property
    def limits(self) -> bool:
        return bool(self._rate)

    async def pay(self, size: int) -> None:
        """Wait until *size* more bytes may go out."""
        if not self._rate:
            return
        now = asyncio.get_running_loop().time()
        if self._paid_until > now + _BURST:
            await asyncio.sleep(self._paid_until - now - _BURST)
        self._paid_until = max(self._paid_until, now) + size / self._rate
