"""What the process's threads leave for the one thread that talks to a layer."""

from __future__ import annotations

import threading

MOST_PENDING = 10_000
"""Keys that wait to be sent while a layer does not answer, about 1 MB; a wake
beyond that is dropped and costs its readers the poll."""


class Marks:
    """Keys to send, and keys that somebody follows; any thread, never waits long."""

    def __init__(self) -> None:
        # Reentrant: signal handlers send, finalisers stop following, and either
        # may interrupt the holder in its own thread.
        self._lock = threading.RLock()
        self._pending: dict[str, None] = {}
        self._followers: dict[str, int] = {}
        self._changed: set[str] = set()

    def send(self, key: str) -> bool:
        """Mark *key* as to be sent; False if it is marked, or there is no room.

        One mark a key, however often it is woken meanwhile: what a listener
        reads after the one wake holds everything that was stored before it.
        """
        with self._lock:
            if key in self._pending or len(self._pending) >= MOST_PENDING:
                return False
            self._pending[key] = None
            return True

    def has_pending(self) -> bool:
        """Whether there are keys to send."""
        return bool(self._pending)

    def take_pending(self) -> list[str]:
        """The keys to send, longest waiting first, and unmark them."""
        with self._lock:
            keys = list(self._pending)
            self._pending.clear()
            return keys

    def follow(self, key: str) -> bool:
        """Count a follower of *key*; whether it is the first."""
        with self._lock:
            count = self._followers.get(key, 0)
            self._followers[key] = count + 1
            if count == 0:
                self._changed.add(key)
            return count == 0

    def unfollow(self, key: str) -> bool:
        """Count one follower less; whether it was the last."""
        with self._lock:
            count = self._followers.get(key, 0)
            if count > 1:
                self._followers[key] = count - 1
                return False
            if count == 1:
                del self._followers[key]
                self._changed.add(key)
            return count == 1

    def follows(self, key: str) -> bool:
        """Whether *key* has a follower now."""
        return key in self._followers

    def followed(self) -> list[str]:
        """All keys that have one."""
        with self._lock:
            return list(self._followers)

    def take_changed(self) -> list[str]:
        """Keys whose first follower came or whose last left since the last call."""
        with self._lock:
            keys = list(self._changed)
            self._changed.clear()
            return keys
