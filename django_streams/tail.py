"""The reader's state machine: what to do next, without doing it.

A driver (sync or async) asks :meth:`Tail.decide` and obeys: fetch a page and
feed it, deliver a batch, tell that the reader is up to date, wait for a wake or
the poll, or finish. All order, gap and end rules are here, and no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto


class Act(Enum):
    FETCH = auto()
    DELIVER = auto()
    UP_TO_DATE = auto()
    WAIT = auto()
    FINISH = auto()


class Tail:
    """Follows one stream from *start* (negative is 0), in batches.

    While replaying a batch holds up to *batch_size* chunks; once up to date it
    holds everything that came since. Text that waits here is bounded by
    *page_bytes* plus one page.
    """

    def __init__(self, start: int, batch_size: int, page_bytes: int) -> None:
        self.position = max(0, start)
        """Seq of the next chunk to hand out."""
        self._batch_size = max(1, batch_size)
        self._page_bytes = page_bytes
        self._waiting: list[str] = []
        self._waiting_bytes = 0
        self._at_end = False
        self._settled = False
        self._told = False

    @property
    def fetch_from(self) -> int:
        """Seq of the first chunk that the next page must hold."""
        return self.position + len(self._waiting)

    @property
    def at_end(self) -> bool:
        """Whether the last page reached the stored end."""
        return self._at_end

    def decide(self) -> Act:
        if self._waiting and (
            self._at_end
            or len(self._waiting) >= self._batch_size
            or self._waiting_bytes >= self._page_bytes
        ):
            return Act.DELIVER
        if not self._at_end:
            return Act.FETCH
        if not self._told:
            return Act.UP_TO_DATE
        return Act.FINISH if self._settled else Act.WAIT

    def feed(self, texts: Sequence[str], cursor: int, settled: bool) -> None:
        """Take a page that begins at :attr:`fetch_from`.

        *cursor* and *settled* are of the same snapshot as the texts: a stream
        is only over when the page that saw it settled reached its end.
        """
        self._waiting.extend(texts)
        self._waiting_bytes += sum(map(len, texts))
        self._at_end = self.fetch_from >= cursor
        self._settled = settled

    def take(self) -> tuple[int, Sequence[str]]:
        """The next batch: its first seq and its texts, never none of them."""
        first = self.position
        if self._told or len(self._waiting) <= self._batch_size:
            batch = self._waiting
            self._waiting = []
            self._waiting_bytes = 0
        else:
            batch = self._waiting[: self._batch_size]
            del self._waiting[: self._batch_size]
            self._waiting_bytes -= sum(map(len, batch))
        self.position += len(batch)
        return first, batch

    def told(self) -> None:
        """The reader knows that it is up to date."""
        self._told = True

    def look_again(self) -> None:
        """Something may have changed: the next act is to fetch."""
        self._at_end = False
