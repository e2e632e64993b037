"""Turns whose runner vanished.

For now such a turn ends as an error that is told to live and later readers,
with what was stored of the reply kept as its message.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from .. import conf
from ..exceptions import StreamClosedError, StreamFencedError
from ..store.base import CANCELLED, INTERRUPTED
from ..streams import Streams
from ..types import StreamState
from ..writer import StreamWriter
from . import door, ends, lease, queue, status
from .records import ConversationRef, Ending, TurnRecord, TurnStatus
from .replay import stored_message, turn_streams
from .run import INTERRUPTED_TEXT

logger = logging.getLogger("django_streams.turns")


async def sweep(ref: ConversationRef) -> bool:
    """End the conversation's running turn if its lease is over.

    Of several processes that meet it one wins; True for that one. Cancelled in
    the middle: the lease we took lapses too, and the next sweep goes on.
    """
    seen = await door.run(status.snapshot, ref)
    if seen.running is None or not seen.lapsed:
        return False
    taken = await door.run(lease.take_over, seen.running, conf.get().TURN_LEASE)
    if taken is None:
        return False
    logger.warning(
        "turn %r of %s lost its runner; ended as interrupted",
        taken.request_id,
        ref.agent,
    )
    await _end(ref, taken)
    return True


async def _end(ref: ConversationRef, turn: TurnRecord) -> None:
    streams = turn_streams(door.alias())
    stopped = turn.cancel_requested
    reason = CANCELLED if stopped else INTERRUPTED
    ending = Ending(
        status=TurnStatus.ABORTED if stopped else TurnStatus.ERRORED,
        error=None if stopped else INTERRUPTED_TEXT,
    )
    if not turn.stream:
        await door.run(ends.finish_alone, turn, ref.wake_key, ending)
        await _settle_orphans(streams, ref, turn, reason)
        return
    writer: StreamWriter | None = None
    if await streams.astatus(turn.stream) is not None:
        with contextlib.suppress(StreamClosedError):
            # Fences the lost runner off before its log is read for good.
            writer = await _take(streams, turn.stream)
        message = await stored_message(streams, turn)
        ending = replace(ending, message=message)

    def commit() -> None:
        ends.finish(turn, ref.wake_key, ending)

    try:
        if writer is None or not await writer.aerror(reason, commit=commit):
            await door.run(ends.finish_alone, turn, ref.wake_key, ending)
    except (queue.Lost, StreamFencedError):
        logger.info("turn %r was ended by another process", turn.request_id)


async def _settle_orphans(
    streams: Streams, ref: ConversationRef, turn: TurnRecord, reason: str
) -> None:
    """Settle what a runner opened and died before it could say so.

    The tag is the client's request id, which says nothing about whose it is.
    """
    live = await streams.alist(tag=turn.request_id, state=StreamState.STREAMING)
    for orphan in live:
        if (orphan.metadata or {}).get("conversation") == ref.key:
            with contextlib.suppress(StreamClosedError, StreamFencedError):
                await (await _take(streams, orphan.stream_id)).aerror(reason)


async def _take(streams: Streams, stream_id: str) -> StreamWriter:
    lease = conf.get().TURN_LEASE
    return await streams.aopen(stream_id, takeover=True, lease=lease, on_lapse="wait")
