"""A run does not end because the database is away for longer than one call waits.

What a runner says is stored before it counts, so while nothing can be stored the
handler waits at its ``yield``. Once the database is back the same call goes on, or
learns that somebody took the turn over meanwhile: only that ends the run.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..exceptions import StreamUnavailableError

logger = logging.getLogger("django_streams.turns")

R = TypeVar("R")


PAUSE = 0.2
"""Seconds between two calls, each of which has waited for ``RETRY_SECONDS``."""

REPEAT = 60.0
"""Seconds after which the log says again that a run waits."""


class Patience:
    """Of one run, which is *name* in the log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._told = -math.inf
        self.ended = False
        """Set when the process ends: then nobody waits any longer."""

    async def outlast(self, work: Callable[[], Awaitable[R]]) -> R:
        """Await *work*, again and again while the database is away.

        *work* must find out what became of its last call, or not mind being done
        twice. Raises :class:`StreamUnavailableError` once :attr:`ended` is set,
        and everything else that *work* raises. Cancelled: it may still take effect.
        """
        while True:
            try:
                return await work()
            except StreamUnavailableError as error:
                if self.ended:
                    raise
                self._tell(error)
            await asyncio.sleep(PAUSE)

    def _tell(self, error: StreamUnavailableError) -> None:
        now = time.monotonic()
        if now - self._told >= REPEAT:
            self._told = now
            logger.warning("%s waits for its database: %s", self._name, error)
