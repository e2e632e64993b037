"""The frames of a reply's chunks, made once for all who see them. Pure.

Sockets that follow a reply take the same spans at nearly the same time: the
first makes the text of a frame, the others send it. Replayed frames differ from
live ones in their head alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from ..spans import Slice, Span

PIECE = 100
"""Frames that are made, and kept, at a time."""

# A string takes the encoder's shortest way; `json.dumps` with an option makes
# an encoder each time, which costs more than the frame.
_quoted = json.JSONEncoder(ensure_ascii=False).encode


def frame(head: str, seq: int, text: str) -> str:
    """One chunk; *text* is its JSON, which travels as a string."""
    return f'{head}{seq},"body":{_quoted(text)}}}'


def frames(part: Slice, head: str, base: int = 0) -> Iterator[list[str]]:
    """The frames of *part*, each beginning with *head*, piece by piece; the first
    chunk of the reply has the number *base*.

    Holds one piece and the chunks of the span, whatever the reader's pace.
    """
    made = part.span.form(_Form(head, base))
    start = part.start
    while start < part.stop:
        stop = min(part.stop, start - start % PIECE + PIECE)
        yield made.cut(start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class _Form:
    """What :meth:`Span.form` keeps the frames under: equal for equal frames."""

    head: str
    base: int

    def __call__(self, span: Span) -> _Made:
        return _Made(self.head, self.base, span)


class _Made:
    """The piece of a span's frames that was asked for last.

    Not all of them: for short chunks frames are many times their size, and a
    client that does not read holds them. Those that do keep step.
    """

    def __init__(self, head: str, base: int, span: Span) -> None:
        self._head = head
        self._first = base + span.first
        self._texts = span.texts
        self._last: tuple[int, list[str]] = (-1, [])

    def cut(self, start: int, stop: int) -> list[str]:
        """Frames of one piece, by their place in the span."""
        number = start // PIECE
        at = number * PIECE
        # Read once: readers on other loops replace it.
        known, piece = self._last
        if known != number:
            some = enumerate(self._texts[at : at + PIECE], self._first + at)
            piece = [frame(self._head, seq, text) for seq, text in some]
            self._last = number, piece
        return piece if stop - start == len(piece) else piece[start - at : stop - at]
