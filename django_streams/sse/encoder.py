"""Server-sent events as bytes. Pure; every function is total.

The wire, event by event::

    id: <seq>        data: <json>                one per chunk, the default event
    event: reset     data: {"cursor": n}         what follows begins again at 0
    event: up-to-date  data: {}                  once, after the replay
    event: done      data: {}   id: <cursor>     completed
    event: error     data: {"reason": …}   id: <cursor>

``done`` and ``error`` carry an id one past the last chunk's, so that a client
that says "I saw the end" differs from one that saw only the last chunk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from ..types import StreamChunk

HEARTBEAT = b":\n"
"""A comment without a blank line after it.

A blank line ends an event, and the OpenAI Python SDK takes one that follows an
earlier ``id:`` for an event with empty data, which it cannot parse: ``:\\n\\n``
ends its loop with a JSONDecodeError. A bare comment line is silence to every
reader.
"""

WRITE_BYTES = 131_072
"""Text of about this many characters goes out in one write, or one chunk.

A hundred 1 KB chunks still are one write. Encoding runs at 1.3 GB/s from 64 to
128 KiB a write and falls to 0.9 at 1 MiB (measured), and a client that does not
read holds one write.
"""

_LINE_END = re.compile(r"\r\n|\r|\n")


def encode_event(
    data: str, *, event: str | None = None, event_id: int | None = None
) -> bytes:
    """One event; *data* of several lines becomes several ``data:`` fields."""
    lines = [] if event_id is None else [f"id: {event_id}"]
    if event is not None:
        # A line end in a name would begin a field of its own.
        lines.append(f"event: {_LINE_END.sub(' ', event)}")
    lines.extend(f"data: {line}" for line in _LINE_END.split(data))
    return _encode("\n".join(lines) + "\n\n")


def encode_chunks(
    chunks: Sequence[StreamChunk], limit: int = WRITE_BYTES
) -> Iterator[bytes]:
    """The events of raw *chunks* (their ``chunk`` is JSON text), write by write.

    One write for the whole batch, unless that is longer than *limit*
    characters: then each write takes events until it reaches the limit.
    """
    events = [f"id: {c.seq}\ndata: {c.chunk}\n\n" for c in chunks]
    text = "".join(events)
    # The codec stores one line a chunk. One scan of the whole proves it; text
    # that came another way is split, or it would end its event too early.
    if text.count("\n") != 3 * len(events) or "\r" in text:
        for chunk in chunks:
            yield encode_event(chunk.chunk, event_id=chunk.seq)
    elif len(text) <= limit:
        if events:
            yield _encode(text)
    else:
        del text
        first = size = 0
        for end, event in enumerate(events, 1):
            size += len(event)
            if size >= limit or end == len(events):
                yield _encode("".join(events[first:end]))
                first, size = end, 0


def _encode(text: str) -> bytes:
    # The codec lets no lone surrogate through; elsewhere one becomes "?", since
    # invalid UTF-8 would cost the client the whole line.
    return text.encode("utf-8", "replace")


def up_to_date() -> bytes:
    """Without an id: it is no position."""
    return b"event: up-to-date\ndata: {}\n\n"


def reset(cursor: int) -> bytes:
    """The client's position does not exist; the stream holds *cursor* chunks."""
    return encode_event(json.dumps({"cursor": cursor}), event="reset")


def done(cursor: int) -> bytes:
    return encode_event("{}", event="done", event_id=cursor)


def error(reason: str | None, cursor: int) -> bytes:
    data = json.dumps({"reason": reason})
    return encode_event(data, event="error", event_id=cursor)


def with_retry(first: bytes, milliseconds: int) -> bytes:
    """*first*, a response's first event, telling how long to wait to reconnect."""
    return b"retry: %d\n" % milliseconds + first
