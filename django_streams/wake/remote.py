"""Wakes between processes, whatever carries them.

One thread a process talks to the outside: what is woken here is left for it in
:class:`~.marks.Marks`, and what it hears it passes to the local waker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from .base import Waker
from .local import LocalWaker
from .marks import Marks
from .thread import LoopThread, Session


class MakeSession(Protocol):
    def __call__(self, marks: Marks, thread: LoopThread) -> Session: ...


class RemoteWaker(Waker):
    """Wakes its own process directly, the others through a carrier.

    *what* names the carrier in log lines. *make_session* is called in the
    waker's thread, again after each failure and after a fork.
    """

    def __init__(self, local: LocalWaker, what: str, make_session: MakeSession) -> None:
        self._local = local
        self._what = what
        self._make_session = make_session
        self._closed = False
        self._ends: dict[int, _End] = {}

    def wake(self, key: str) -> None:
        """Call the local listeners, then leave *key* to the sending thread."""
        self._local.wake(key)
        self.send(key)

    def send(self, key: str) -> None:
        """Wake the listeners of *key* in other processes only."""
        if not self._closed:
            self._end().send(key)

    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`Waker.listen`, and a call once the carrier listens as well.

        Unless it does so already, for another listener. That call closes the gap
        between the read that follows ``listen`` and the moment from which other
        processes are heard.
        """
        stop_local = self._local.listen(key, callback)
        unfollow = self.follow(key)

        def stop() -> None:
            stop_local()
            unfollow()

        return stop

    def follow(self, key: str) -> Callable[[], None]:
        """Hear *key* from other processes; returns "no longer", idempotent."""
        if self._closed:
            return _nothing
        end = self._end()
        end.follow(key)
        running = True

        def stop() -> None:
            nonlocal running
            # An end made before a fork is the parent's, its lock too.
            if running and end.pid == os.getpid():
                running = False
                end.unfollow(key)

        return stop

    def close(self) -> None:
        """Send what is pending, stop listening, end the thread; a few seconds."""
        self._closed = True
        end = self._ends.get(os.getpid())
        if end is not None:
            end.thread.close()

    def _end(self) -> _End:
        """This process's end of the carrier, remade after a fork without a lock.

        The parent's is kept: letting go of it in the child would run finalisers
        of a selector that both processes share.
        """
        pid = os.getpid()
        end = self._ends.get(pid)
        if end is None:
            end = self._ends.setdefault(pid, _End(pid, self._what, self._make_session))
        return end


class SeveralWakers(Waker):
    """One local waker and several carriers to other processes beside it."""

    def __init__(self, local: LocalWaker, carriers: Sequence[RemoteWaker]) -> None:
        self._local = local
        self._carriers = tuple(carriers)

    def wake(self, key: str) -> None:
        """Call the local listeners once, and send *key* by every carrier."""
        self._local.wake(key)
        for carrier in self._carriers:
            carrier.send(key)

    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`RemoteWaker.listen`; a wake may come once by each carrier."""
        stops = [self._local.listen(key, callback)]
        stops += [carrier.follow(key) for carrier in self._carriers]

        def stop() -> None:
            for one in stops:
                one()

        return stop

    def close(self) -> None:
        for carrier in self._carriers:
            carrier.close()


class _End:
    """What one process has of a carrier: its marks and its thread."""

    def __init__(self, pid: int, what: str, make_session: MakeSession) -> None:
        self.pid = pid
        self.marks = Marks()
        self.thread = LoopThread(what, partial(make_session, self.marks))

    def send(self, key: str) -> None:
        if self.marks.send(key):
            self._changed()

    def follow(self, key: str) -> None:
        if self.marks.follow(key):
            self._changed()

    def unfollow(self, key: str) -> None:
        if self.marks.unfollow(key):
            self._changed()

    def _changed(self) -> None:
        self.thread.start()
        self.thread.poke()


def _nothing() -> None:
    """Of a waker that was closed there is nothing to stop."""
