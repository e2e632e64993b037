"""Keeps an AI reply that is still being written, so that nobody loses it.

The public names. Importing this package needs neither settings nor loaded
apps: what touches models is imported at first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .exceptions import (
    ChunkTooLargeError,
    PublicError,
    StreamCancelledError,
    StreamClosedError,
    StreamConflictError,
    StreamFencedError,
    StreamLiveError,
    StreamNotFoundError,
    StreamSerializationError,
    StreamsError,
    StreamUnavailableError,
    StreamUsageError,
)
from .types import StreamChunk, StreamState, StreamStatus

if TYPE_CHECKING:
    from .sse.response import sse_response
    from .streams import Streams
    from .writer import StreamWriter

__all__ = [
    "ChunkTooLargeError",
    "PublicError",
    "StreamCancelledError",
    "StreamChunk",
    "StreamClosedError",
    "StreamConflictError",
    "StreamFencedError",
    "StreamLiveError",
    "StreamNotFoundError",
    "StreamSerializationError",
    "StreamState",
    "StreamStatus",
    "StreamUnavailableError",
    "StreamUsageError",
    "StreamWriter",
    "Streams",
    "StreamsError",
    "sse_response",
]

_FIRST_USE = {
    "StreamWriter": ".writer",
    "Streams": ".streams",
    "sse_response": ".sse.response",
}


def __getattr__(name: str) -> Any:
    if (module := _FIRST_USE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIRST_USE})
