"""How fast a client may send frames: a bucket of permits, without I/O."""

from __future__ import annotations

from typing import Final

SAVED: Final = 10.0
"""Seconds' worth of frames that may come at once: a client keeps what it would
have sent while it was offline."""


class Rate:
    """*rate* frames a second on average; None for any number."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._permits = (rate or 0.0) * SAVED
        self._then: float | None = None

    def allows(self, now: float) -> bool:
        """Whether a frame that comes at *now*, in seconds, is within the rate."""
        if self._rate is None:
            return True
        past = 0.0 if self._then is None else now - self._then
        self._then = now
        most = self._rate * SAVED
        self._permits = min(most, self._permits + past * self._rate)
        if self._permits < 1.0:
            return False
        self._permits -= 1.0
        return True
