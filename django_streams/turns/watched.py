"""Whether somebody still watches the turn that this process runs."""

from __future__ import annotations

import asyncio
import logging

from .. import conf
from . import door, presence
from .policy import CONTINUE, SAVE, CancelAfter, Unwatched
from .records import ConversationRef, TurnRecord

logger = logging.getLogger("django_streams.turns")


def watch_over(
    ref: ConversationRef, turn: TurnRecord, policy: Unwatched
) -> Watched | None:
    """None for a turn that goes on whoever watches.

    Code that asked for a turn waits for it, and is watching in its own way.
    """
    if not isinstance(policy, CancelAfter) or turn.trigger in (SAVE, CONTINUE):
        return None
    return Watched(ref, turn, policy.seconds)


class Watched:
    """Asked at each renewal of the turn's lease."""

    def __init__(self, ref: ConversationRef, turn: TurnRecord, grace: float) -> None:
        self._ref = ref
        self._turn = turn
        self._grace = grace
        self._looked = asyncio.get_running_loop().time()
        self._not_before = 0.0

    async def over(self) -> bool:
        """Whether nobody has watched for the grace time; the turn is then asked
        to stop, as by anybody. Cancelled: it may be asked."""
        ttl = conf.get().PRESENCE_TTL
        now = asyncio.get_running_loop().time()
        if now - self._looked > ttl / 2:
            # We, or the database, were away. So perhaps were those who watch:
            # they get the time to say that they are still there.
            self._not_before = now + ttl
        if now < self._not_before:
            self._looked = now
            return False
        try:
            stopped = await door.run(
                presence.stop_unwatched, self._ref, self._turn, self._grace, ttl
            )
        except Exception as error:
            logger.warning(
                "turn %r of %s: not known who watches: %s",
                self._turn.request_id,
                self._ref.agent,
                error,
            )
            return False
        self._looked = asyncio.get_running_loop().time()
        if stopped:
            logger.info(
                "turn %r of %s: nobody has watched for %g s",
                self._turn.request_id,
                self._ref.agent,
                self._grace,
            )
        return stopped
