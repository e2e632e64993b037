"""Every error that django_streams raises on purpose.

::

    StreamsError
    ├── StreamNotFoundError
    ├── StreamClosedError           code "closed" or "deleted"
    ├── StreamConflictError
    ├── StreamFencedError
    ├── StreamLiveError
    ├── StreamCancelledError
    ├── StreamSerializationError
    │   └── ChunkTooLargeError
    ├── StreamUnavailableError      the database did not answer in time
    ├── StreamUsageError            called from the wrong kind of code
    └── PublicError                 its text may be shown to clients

``code`` is for machines, the message names the value and the next step. HTTP
status codes are chosen at the edges, never here. Invalid arguments are
``ValueError`` and ``TypeError``, as everywhere in Python.
"""

from __future__ import annotations

from typing import ClassVar


class StreamsError(Exception):
    """Root of the tree; catch it to catch everything this library raises."""

    default_code: ClassVar[str] = "error"

    def __init__(
        self, message: str, *, stream_id: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.stream_id = stream_id
        self.code = code or self.default_code


class StreamNotFoundError(StreamsError):
    """A read of an id that no stream has."""

    default_code = "not_found"


class StreamClosedError(StreamsError):
    """The stream is settled (``code="closed"``) or was deleted (``"deleted"``)."""

    default_code = "closed"


class StreamConflictError(StreamsError):
    """A live stream was reopened with another tag."""

    default_code = "conflict"


class StreamFencedError(StreamsError):
    """Another writer took the stream over; this one must stop producing."""

    default_code = "fenced"


class StreamLiveError(StreamsError):
    """A live stream cannot be deleted."""

    default_code = "live"


class StreamCancelledError(StreamsError):
    """Somebody asked this producer to stop; settle the stream and return."""

    default_code = "cancelled"


class StreamSerializationError(StreamsError):
    """A chunk or metadata is not JSON; ``path`` says where, as ``$.items[2]``."""

    default_code = "not_json"

    def __init__(
        self,
        message: str,
        *,
        path: str = "$",
        stream_id: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, stream_id=stream_id, code=code)
        self.path = path


class ChunkTooLargeError(StreamSerializationError):
    """The JSON text of a chunk or of metadata exceeds ``limit`` bytes."""

    default_code = "too_large"

    def __init__(
        self, message: str, *, size: int, limit: int, stream_id: str | None = None
    ) -> None:
        super().__init__(message, stream_id=stream_id)
        self.size = size
        self.limit = limit


class StreamUnavailableError(StreamsError):
    """The database refused or did not answer for ``RETRY_SECONDS``.

    Whether the last write took effect is unknown; the handle resolves that
    before its next write, so calling again is safe.
    """

    default_code = "unavailable"


class StreamUsageError(StreamsError):
    """Called from code that cannot run it; the message names what to call."""

    default_code = "usage"


class PublicError(StreamsError):
    """Raised by an application; its text may be shown to clients."""

    default_code = "public"
