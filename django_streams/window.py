"""The recent end of a log, as spans. Pure; the caller guards it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from .spans import Slice, Span, joined

_MERGED = 32
"""Small spans that become one: a reader that lags by a hundred single chunks
takes a few spans, not a hundred."""


class Window:
    """Spans without a gap between them, up to *most* characters or one span."""

    def __init__(self, cursor: int, most: int) -> None:
        self.cursor = cursor
        """Seq after the last chunk."""
        self._most = most
        self._spans: deque[Span] = deque()
        self._size = 0
        self._small = 0

    @property
    def first(self) -> int:
        """Seq of the oldest chunk; the cursor of an empty window."""
        return self._spans[0].first if self._spans else self.cursor

    def add(self, texts: Sequence[str]) -> None:
        """Take the chunks that follow; what is oldest leaves."""
        if not texts:
            return
        span = Span(self.cursor, texts)
        self.cursor = span.end
        self._spans.append(span)
        self._size += span.size
        self._small = self._small + 1 if len(texts) < _MERGED else 0
        if self._small == _MERGED:
            self._spans.append(
                joined([self._spans.pop() for _ in range(_MERGED)][::-1])
            )
            self._small = 0
        while self._size > self._most and len(self._spans) > 1:
            self._size -= self._spans.popleft().size
            self._small = min(self._small, len(self._spans))

    def after(self, position: int) -> list[Slice]:
        """What is at *position* and behind it, which must not be before the first."""
        parts: list[Slice] = []
        for span in reversed(self._spans):
            if span.end <= position:
                break
            parts.append(span.after(position))
        parts.reverse()
        return parts
