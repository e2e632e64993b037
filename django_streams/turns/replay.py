"""The message that a turn's log holds."""

from __future__ import annotations

from contextlib import aclosing

from ..exceptions import StreamClosedError, StreamNotFoundError
from ..messages import Accumulator
from ..streams import Streams
from .records import TurnRecord, UIMessage

MAX_CHUNK_BYTES = 16 * 1024 * 1024
"""A chunk of a reply may hold a file; the limit of a frame is the same."""


def turn_streams(alias: str) -> Streams:
    """The streams that the replies of this database are written to."""
    return Streams(using=alias, max_chunk_bytes=MAX_CHUNK_BYTES)


async def stored_message(
    streams: Streams, turn: TurnRecord, base: UIMessage | None = None
) -> UIMessage | None:
    """What the stored chunks of *turn* add up to; None if that is nothing."""
    status = await streams.astatus(turn.stream)
    if status is None or not status.cursor:
        return None
    built = Accumulator(turn.message_id, base=base)
    try:
        async with aclosing(streams.aread_batches(turn.stream)) as batches:
            async for batch in batches:
                for item in batch:
                    built.apply(item.chunk)
                if batch[-1].seq + 1 >= status.cursor:
                    break
    except (StreamNotFoundError, StreamClosedError):
        return None
    return None if built.empty else built.message
