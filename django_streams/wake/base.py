"""What every waker promises, and what it does not."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable


class Waker(ABC):
    """Carries wakes: hints that a stream changed, without saying how.

    A wake may be lost, late, doubled, out of order or invented. Whoever listens
    looks into the store and polls besides, so a wake can only save time. *key*
    is ``ids.stream_key(stream_id)``, 32 hexadecimal digits.
    """

    @abstractmethod
    def wake(self, key: str) -> None:
        """Tell the listeners of *key*, here and in other processes, to look.

        Callable from any thread, any event loop, a signal handler and a
        finaliser. Returns at once, never raises, never waits for a network.
        """

    @abstractmethod
    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call *callback* at every wake of *key*; returns "stop listening".

        Listen first, then read, then wait: what is stored after the read wakes.
        *callback* runs in whichever thread the wake came from, sometimes in the
        middle of an append, so it only passes the news on (set an event). What
        it raises is logged. Stopping twice is harmless, and a stop may come from
        a finaliser; a call that is under way in another thread may still end
        after it.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of threads and connections; a second call does nothing.

        Afterwards ``wake`` and ``listen`` are still harmless, but reach no
        other process.
        """
