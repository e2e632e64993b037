"""Whose turn it is on one handle: first come, first served.

Nobody who waits costs a thread, except a synchronous caller his own. So a call
that was given up, behind a row that somebody holds, stops neither the event
loop nor the few threads that all streams share.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .exceptions import StreamUsageError


class Place:
    """One who waits; *begin* is called when the turn comes and must not block."""

    __slots__ = ("_line", "begin", "begun", "dropped")

    def __init__(self, line: Line, begin: Callable[[], None]) -> None:
        self._line = line
        self.begin = begin
        self.begun = False
        self.dropped = False

    def drop(self) -> bool:
        """Give the place up; False if the turn has come already."""
        return self._line.drop(self)


class Line:
    """The places of one handle. Whoever's turn ends calls :meth:`leave`."""

    def __init__(self) -> None:
        # Guards the queue only, and is never held while anything is done.
        self._lock = threading.Lock()
        self._places: deque[Place] = deque()
        self._taken = False
        self._pid = os.getpid()
        self._thread: int | None = None

    def join(self, begin: Callable[[], None]) -> Place:
        """Line up; *begin* may be called before this returns.

        Raises :class:`StreamUsageError` in a forked child whose parent had a
        write under way: the thread that would end its turn is not here.
        """
        self._stay_in_process()
        place = Place(self, begin)
        with self._lock:
            if self._taken:
                self._places.append(place)
                return place
            self._taken = place.begun = True
        begin()
        return place

    def _stay_in_process(self) -> None:
        if os.getpid() != self._pid:
            if self._taken:
                raise StreamUsageError(
                    "this writer was in the middle of a write when the process "
                    "forked; open the stream again in this process"
                )
            self._pid = os.getpid()

    def leave(self) -> None:
        """End the turn, and begin the next one's."""
        with self._lock:
            place = self._next()
            self._taken = place is not None
        if place is not None:
            place.begin()

    def drop(self, place: Place) -> bool:
        with self._lock:
            place.dropped = not place.begun
            return place.dropped

    def _next(self) -> Place | None:
        while self._places:
            place = self._places.popleft()
            if not place.dropped:
                place.begun = True
                return place
        return None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Wait for the turn on this thread, and have it until the block ends.

        Re-entrant: what runs within, such as ``commit=``, may use the handle.
        """
        if self._thread == threading.get_ident():
            yield
            return
        mine = threading.Event()
        place = self.join(mine.set)
        try:
            mine.wait()
        except BaseException:
            if not place.drop():
                self.leave()
            raise
        with self.inside():
            yield

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Work on this thread, whose turn it is, and leave at the end."""
        self._thread = threading.get_ident()
        try:
            yield
        finally:
            self._thread = None
            self.leave()
