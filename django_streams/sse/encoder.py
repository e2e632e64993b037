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
import sys
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from ..spans import Slice, Span

HEARTBEAT = b":\n"
"""A comment without a blank line after it.

A blank line ends an event, and the OpenAI Python SDK takes one that follows an
earlier ``id:`` for an event with empty data, which it cannot parse: ``:\\n\\n``
ends its loop with a JSONDecodeError. A bare comment line is silence to every
reader.
"""

WRITE_BYTES = 32_768
"""About this many bytes go out in one write, or one chunk.

A client that does not read holds three copies of one write, with the server's
and the transport's.
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


def encode(
    parts: Iterable[Slice], limit: int = WRITE_BYTES, most: int | None = None
) -> Iterator[bytes]:
    """The events of raw chunks, write by write.

    One write for all, unless that is longer than *limit* bytes or has more than
    *most* events: then each write takes events until it reaches one of them.
    Each span is encoded once, whoever reads it, and let go with the last write
    that is cut out of its bytes.
    """
    rest = deque(parts)
    del parts
    held: list[bytes] = []
    size, left = 0, most or sys.maxsize
    while rest:
        span, start, stop = rest.popleft()
        data, ends = span.form(_events)
        del span
        while start < stop:
            end = min(stop, start + left)
            if size + ends[end] - ends[start] > limit:
                # The first event at whose end the limit is reached.
                enough = ends[start] + limit - size
                end = bisect_left(ends, enough, start + 1, end)
            cut = data[ends[start] : ends[end]]
            size, left = size + len(cut), left - (end - start)
            held.append(cut)
            start = end
            if size >= limit or not left:
                yield b"".join(held)
                held, size, left = [], 0, most or sys.maxsize
    if held:
        yield held[0] if len(held) == 1 else b"".join(held)


def _events(span: Span) -> tuple[bytes, Sequence[int]]:
    """The events of *span*, and where each begins; then the end of the last."""
    texts = span.texts
    # The codec stores one line a chunk; text that came another way is split, or
    # it would end its event too early.
    if any("\n" in text or "\r" in text for text in texts):
        parts = [
            encode_event(t, event_id=seq) for seq, t in enumerate(texts, span.first)
        ]
        data, lengths = b"".join(parts), map(len, parts)
    else:
        events = [f"id: {i}\ndata: {t}\n\n" for i, t in enumerate(texts, span.first)]
        whole = "".join(events)
        data = _encode(whole)
        if len(data) == len(whole):
            lengths = map(len, events)
        else:
            lengths = map(len, map(_encode, events))
    return data, array("Q", accumulate(lengths, initial=0))


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
