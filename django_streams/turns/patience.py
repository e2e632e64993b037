"""A run does not end because the database is away for longer than one call waits.

What a runner says is stored before it counts, so while nothing can be stored the
handler waits at its ``yield``. Once the database is back the same call goes on, or
learns that somebody took the turn over meanwhile: only that ends the run.

A database that stores the renewals of the lease and nothing else is not away: a
full disk, a limit on statements, a trigger. That is a failure like any other, and
the run must stay one that can be stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..exceptions import StreamUnavailableError
from .pulse import Pulse

logger = logging.getLogger("django_streams.turns")

R = TypeVar("R")


PAUSE = 0.2
"""Seconds between two calls, each of which has waited for ``RETRY_SECONDS``."""

REPEAT = 60.0
"""Seconds after which the log says again that a run waits."""

REFUSED = 60.0
"""Seconds after which a database that renews the lease and refuses the rest has
refused it for good. Longer than a lock that a migration takes should be held."""


class Patience:
    """Of one run, which is *name* in the log."""

    def __init__(self, name: str, pulse: Pulse) -> None:
        self._name = name
        self._pulse = pulse
        self._told = -math.inf
        self.ended = False
        """Set when the process ends: then nobody waits any longer."""
        self.hurry = threading.Event()
        """Set when what is being said is not to be tried again."""

    async def outlast(
        self, work: Callable[[], Awaitable[R]], *, speaking: bool = False
    ) -> R:
        """Await *work*, again and again while the database is away.

        *work* must find out what became of its last call, or not mind being done
        twice. *speaking*: it is worth nothing once the turn is to stop.

        Raises :class:`StreamUnavailableError` once :attr:`ended` is set or there
        is nothing to wait for, and everything else that *work* raises. Cancelled:
        it may still take effect.
        """
        since = None
        while True:
            try:
                return await work()
            except StreamUnavailableError as error:
                if self.ended or (speaking and self._pulse.stopping.is_set()):
                    raise
                now = asyncio.get_running_loop().time()
                if since is None or not self._pulse.renewing:
                    since = now
                elif now - since >= REFUSED and self._pulse.renewed > since:
                    raise
                self._tell(now, error)
            await asyncio.sleep(PAUSE)

    def _tell(self, now: float, error: StreamUnavailableError) -> None:
        if now - self._told >= REPEAT:
            self._told = now
            logger.warning("%s waits for its database: %s", self._name, error)
