"""The reply of one run: what goes into the log also goes into the message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from ..exceptions import (
    StreamCancelledError,
    StreamClosedError,
    StreamFencedError,
    StreamSerializationError,
)
from ..messages import Accumulator, Grammar
from ..messages.answers import Change, late_output
from ..messages.parts import Part
from ..writer import StreamWriter
from . import door
from .patience import Patience
from .records import TurnRecord, UIMessage
from .replay import stored_chunks, turn_streams

logger = logging.getLogger("django_streams.turns")


class Stopped(Exception):
    """Nothing more may be said: the turn is to stop, or is another's by now."""


class Reply:
    """The message as it is being written, and the writer of its log."""

    def __init__(
        self, record: TurnRecord, patience: Patience, base: UIMessage | None = None
    ) -> None:
        self._record = record
        self._patience = patience
        self._base = base
        self._grammar = Grammar(
            record.message_id,
            text_id=record.request_id,
            continuation=record.continuation,
        )
        self._built = Accumulator(record.message_id, base=base)
        self.says_all = False
        """Whether the model said that it has nothing to add."""
        self.writer: StreamWriter | None = None
        """None until the reply begins."""
        self._torn = False
        """Whether the message may have what the log did not take."""

    @property
    def message(self) -> UIMessage | None:
        """What was said so far; None if nothing is worth keeping."""
        return None if self._built.empty else self._built.message

    def call(self, call_id: str) -> Part | None:
        """The newest tool call of that id that was made so far."""
        return self._built.call(call_id)

    def late(self, item: Any) -> Change | None:
        """What *item* changes in an earlier message, if it is the output of a call
        that this one does not have."""
        change = late_output(item) if isinstance(item, dict) else None
        known = change is not None and self._built.call(item["toolCallId"])
        return None if known else change

    @property
    def finished(self) -> bool:
        """Whether it was said to its end."""
        return self._grammar.finished

    async def resume(self, stream_id: str) -> None:
        """Go on behind what the log holds. Nobody else may be writing to it."""
        self._grammar.resume(await self._rebuild(stream_id))

    async def _rebuild(self, stream_id: str) -> Sequence[Any]:
        """Make the message what the log holds; the log's chunks."""
        chunks = await self._patience.outlast(lambda: self._stored(stream_id))
        self._built = Accumulator(self._record.message_id, base=self._base)
        for chunk in chunks:
            self._apply(chunk)
        return chunks

    async def _stored(self, stream_id: str) -> Sequence[Any]:
        return await stored_chunks(turn_streams(door.alias()), stream_id) or []

    async def say(self, item: Any) -> None:
        """Push a yielded string or chunk.

        Raises ``TypeError`` for anything else, and what appends raise.
        """
        if isinstance(item, str):
            await self._push(self._grammar.text(item))
        else:
            await self._push(self._grammar.chunk(item))

    async def finish(self) -> None:
        """End the reply as one that was said to its end."""
        await self._push(self._grammar.finish())
        # Hears of a stream that was stopped meanwhile and dropped the rest.
        await self.flush()

    async def flush(self) -> None:
        """Return when all that was said is stored."""
        assert self.writer is not None
        await self._store(self.writer.aflush)

    async def cut(self) -> None:
        """End an open text of ours, and make sure that the message is the log."""
        if self.writer is None:
            return
        try:
            if not self._torn:
                await self._push(self._grammar.cut())
                await self.flush()
        except StreamFencedError as error:
            logger.warning("turn %r: %s", self._record.request_id, error)
            return
        except (StreamCancelledError, StreamClosedError):
            # The stream itself was stopped.
            pass
        except Exception as error:
            logger.warning(
                "turn %r: not all that was said is kept: %s",
                self._record.request_id,
                error,
            )
        if self._torn:
            await self._patience.outlast(self.writer.adrop)
            await self._rebuild(self.writer.stream_id)

    async def _push(self, chunks: Sequence[dict[str, Any]]) -> None:
        assert self.writer is not None
        for chunk in chunks:
            for shown in self._built.forwarded(chunk):
                # What raises for earlier chunks has not taken this one.
                await self._store(partial(self.writer.apush, shown))
                self._apply(shown)

    async def _store(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._patience.outlast(work, speaking=True)
        except StreamSerializationError:
            # Refused before it was taken, and with it nothing else.
            raise
        except Exception:
            self._torn = True
            raise

    def _apply(self, chunk: Any) -> None:
        self._built.apply(chunk)
        if chunk["type"] == "finish":
            self.says_all = chunk.get("finishReason") == "stop"
