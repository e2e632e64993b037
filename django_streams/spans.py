"""Runs of consecutive chunks as JSON texts, shared by all who read them. Pure.

A page of the log, or what came since the last look, is one :class:`Span`
however many readers it goes to. A reader takes a :class:`Slice` of it, which
copies nothing, and what an edge makes of a span (the bytes of its events) is
made once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Span:
    """The chunks from *first* on; never changed."""

    def __init__(self, first: int, texts: Sequence[str]) -> None:
        self.first = first
        self.texts = texts

    @property
    def end(self) -> int:
        """Seq after the last chunk."""
        return self.first + len(self.texts)

    @cached_property
    def size(self) -> int:
        """Characters of text."""
        return sum(map(len, self.texts))

    def form(self, make: Callable[[Span], T]) -> T:
        """What *make* makes of this span, made once for each *make*.

        Two threads that ask at the same instant may both make it.
        """
        forms: dict[Callable[[Span], Any], Any] = self._forms
        made: T | None = forms.get(make)
        if made is None:
            made = forms[make] = make(self)
        return made

    @cached_property
    def _forms(self) -> dict[Callable[[Span], Any], Any]:
        return {}

    def after(self, position: int) -> Slice:
        """What is at *position* and behind it; *position* must be inside."""
        return Slice(self, max(0, position - self.first), len(self.texts))


class Slice(NamedTuple):
    """``span.texts[start:stop]``, never empty."""

    span: Span
    start: int
    stop: int

    @property
    def first(self) -> int:
        """Seq of the first chunk."""
        return self.span.first + self.start

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def texts(self) -> Sequence[str]:
        if self.length == len(self.span.texts):
            return self.span.texts
        return self.span.texts[self.start : self.stop]

    @property
    def size(self) -> int:
        """Characters of text."""
        if self.length == len(self.span.texts):
            return self.span.size
        return sum(map(len, self.texts))

    def split(self, seq: int) -> tuple[Slice | None, Slice | None]:
        """What is before *seq*, and what is not; None for nothing."""
        at = min(max(self.start, seq - self.span.first), self.stop)
        before = Slice(self.span, self.start, at) if at > self.start else None
        behind = Slice(self.span, at, self.stop) if at < self.stop else None
        return before, behind


def joined(spans: Iterable[Span]) -> Span:
    """Spans that follow on each other, at least one, as one."""
    some = list(spans)
    texts = [text for span in some for text in span.texts]
    return Span(some[0].first, texts)


_CUT = 32_768
"""Characters of a span of a page. What an edge makes of a page, it makes of one
such span at a time, and holds no more of it."""


def cut(first: int, texts: Sequence[str]) -> list[Span]:
    """A page as spans of about :data:`_CUT` characters, or one chunk."""
    spans: list[Span] = []
    begin = size = 0
    for index, text in enumerate(texts, 1):
        size += len(text)
        if size >= _CUT or index == len(texts):
            spans.append(Span(first + begin, texts[begin:index]))
            begin, size = index, 0
    return spans
