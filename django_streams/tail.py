"""The reader's state machine: what to do next, without doing it.

A driver (sync or async) asks :meth:`Tail.decide` and obeys: fetch a page and
feed it, deliver a batch, tell that the reader is up to date, wait for a wake or
the poll, or finish. All order, gap and end rules are here, and no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

from .spans import Slice


class Act(Enum):
    FETCH = auto()
    DELIVER = auto()
    UP_TO_DATE = auto()
    WAIT = auto()
    FINISH = auto()


class Tail:
    """Follows one stream from *start* (negative is 0), in batches.

    While replaying a batch holds up to *batch_size* chunks, or with None what a
    page brought; once up to date it holds everything that came since. Text that
    waits here is bounded by *page_bytes* plus one page.
    """

    def __init__(self, start: int, batch_size: int | None, page_bytes: int) -> None:
        self.position = max(0, start)
        """Seq of the next chunk to hand out."""
        self._batch_size = None if batch_size is None else max(1, batch_size)
        self._page_bytes = page_bytes
        self._waiting: list[Slice] = []
        self._count = 0
        self._at_end = False
        self._settled = False
        self._told = False

    @property
    def fetch_from(self) -> int:
        """Seq of the first chunk that the next page must hold."""
        return self.position + self._count

    @property
    def at_end(self) -> bool:
        """Whether the last page reached the stored end."""
        return self._at_end

    def decide(self) -> Act:
        if self._waiting and (
            self._at_end
            or self._batch_size is None
            or self._count >= self._batch_size
            or sum(part.size for part in self._waiting) >= self._page_bytes
        ):
            return Act.DELIVER
        if not self._at_end:
            return Act.FETCH
        if not self._told:
            return Act.UP_TO_DATE
        return Act.FINISH if self._settled else Act.WAIT

    def feed(self, parts: Iterable[Slice], cursor: int | None, settled: bool) -> None:
        """Take what begins at :attr:`fetch_from` and has no gap.

        *cursor* and *settled* are of the same snapshot as the texts: a stream
        is only over when the page that saw it settled reached its end. None is
        the cursor of what was read earlier, for somebody else: it never is the
        end, which must be looked for.
        """
        for part in parts:
            self._waiting.append(part)
            self._count += part.length
        self._at_end = cursor is not None and self.fetch_from >= cursor
        self._settled = settled

    def take(self) -> list[Slice]:
        """The next batch, never empty."""
        batch = self._waiting
        size = self._batch_size
        if self._told or size is None or self._count <= size:
            self._waiting, taken = [], self._count
        else:
            taken = left = size
            index = 0
            while (count := batch[index].length) <= left:
                left -= count
                index += 1
            self._waiting = batch[index:]
            del batch[index:]
            if left:
                span, start, stop = self._waiting[0]
                batch.append(Slice(span, start, start + left))
                self._waiting[0] = Slice(span, start + left, stop)
        self._count -= taken
        self.position += taken
        return batch

    def told(self) -> None:
        """The reader knows that it is up to date."""
        self._told = True

    def look_again(self) -> None:
        """Something may have changed: the next act is to fetch."""
        self._at_end = False
