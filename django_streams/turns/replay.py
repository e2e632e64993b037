"""The chunks and the message that a turn's log holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from .. import codec
from ..exceptions import StreamClosedError, StreamNotFoundError
from ..messages import Accumulator
from ..streams import Streams
from . import door, status
from .conversations import NO_LIMIT
from .records import ConversationRef, TurnRecord, UIMessage

MAX_CHUNK_BYTES = 16 * 1024 * 1024
"""A chunk of a reply may hold a file; the limit of a frame is the same."""


def turn_streams(alias: str) -> Streams:
    """The streams that the replies of this database are written to."""
    return Streams(using=alias, max_chunk_bytes=MAX_CHUNK_BYTES)


async def stored_chunks(streams: Streams, stream_id: str) -> list[Any] | None:
    """The chunks that are stored now; None if the stream is not there."""
    status = await streams.astatus(stream_id)
    if status is None:
        return None
    chunks: list[Any] = []
    if not status.cursor:
        return chunks
    try:
        async with aclosing(streams.aread_batches(stream_id)) as batches:
            async for batch in batches:
                chunks += [item.chunk for item in batch]
                if batch[-1].seq + 1 >= status.cursor:
                    break
    except (StreamNotFoundError, StreamClosedError):
        return None
    return chunks[: status.cursor]


async def stored_message(
    streams: Streams, turn: TurnRecord, base: UIMessage | None = None
) -> UIMessage | None:
    """What the stored chunks of *turn* add up to; None if that is nothing."""
    built = Accumulator(turn.message_id, base=base)
    for chunk in await stored_chunks(streams, turn.stream) or ():
        built.apply(chunk)
    return None if built.empty else built.message


async def with_partial(ref: ConversationRef, texts: Sequence[str]) -> Sequence[str]:
    """The transcript *texts* and, at the end, what the running turn has said."""
    running = (await door.run(status.snapshot, ref)).active
    if running is None or running.continuation:
        # A continuation's message is in the transcript, as it was before.
        return texts
    message = await stored_message(turn_streams(door.alias()), running)
    if message is None:
        return texts
    text = codec.encode(message, limit=NO_LIMIT, what="message")
    return [*texts, text]
