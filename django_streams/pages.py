"""Pages of logs that were read lately, for others who read the same.

Two hundred readers that come back after a cut read the same pages within a
second; the first reads them for all. What is stored never changes, so a page
is true for as long as somebody follows its stream.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from . import conf
from .spans import Slice, Span

_Stream = tuple[str, int]
"""Alias and row."""


class Pages:
    """At most ``PAGE_CACHE`` characters; the least recently used leave first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: OrderedDict[tuple[_Stream, int], Span] = OrderedDict()
        self._of: dict[_Stream, dict[int, Span]] = {}
        self._size = 0

    def find(self, stream: _Stream, position: int) -> Slice | None:
        """What is kept from *position* on."""
        with self._lock:
            mine = self._of.get(stream, {})
            # Who reads on begins where a page begins.
            span = mine.get(position) or next(
                (one for one in mine.values() if one.first <= position < one.end), None
            )
            if span is None:
                return None
            self._spans.move_to_end((stream, span.first))
            return span.after(position)

    def keep(self, stream: _Stream, span: Span) -> None:
        """Keep a page just read, unless it is larger than all may be."""
        most = conf.get().PAGE_CACHE
        with self._lock:
            self._remove(stream, span.first)
            if span.size > most:
                return
            self._spans[stream, span.first] = span
            self._of.setdefault(stream, {})[span.first] = span
            self._size += span.size
            while self._size > most:
                self._remove(*next(iter(self._spans)))

    def drop(self, stream: _Stream) -> None:
        """Nobody follows *stream* any more."""
        with self._lock:
            for first in list(self._of.get(stream, {})):
                self._remove(stream, first)

    def _remove(self, stream: _Stream, first: int) -> None:
        span = self._spans.pop((stream, first), None)
        if span is not None:
            self._size -= span.size
            mine = self._of[stream]
            del mine[first]
            if not mine:
                del self._of[stream]
