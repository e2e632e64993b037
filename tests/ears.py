"""A listener to wakes that a test can wait for."""

from __future__ import annotations

import threading

WITHIN = 10.0
"""Seconds after which a wake that must come counts as not coming."""


class Ear:
    """A callback that counts, and waits until it was called."""

    def __init__(self) -> None:
        self.count = 0
        self._called = threading.Condition()

    def __call__(self) -> None:
        with self._called:
            self.count += 1
            self._called.notify_all()

    def hears(self, times: int = 1) -> None:
        """Returns once it was called *times* times in all."""
        with self._called:
            heard = self._called.wait_for(lambda: self.count >= times, WITHIN)
        assert heard, f"heard {self.count} of {times} wakes within {WITHIN} s"
