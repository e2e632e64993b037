"""A waker that does its worst, to show that nothing depends on a wake."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from ..wake.base import Waker


class LossyWaker(Waker):
    """Loses, holds back, doubles and invents the wakes of another waker.

    Each of *lose*, *late* and *double* is the probability, 0 to 1, that it
    befalls a wake; *invent* that a wake brings along one that nobody sent, for
    a key somebody listens to. A late wake goes out after 1 to *late_by* others,
    so it comes out of order, or with :meth:`release`. The same *seed* and the
    same calls give the same mishaps::

        streams = Streams(wake=LossyWaker(LocalWaker(), seed=7, lose=0.5))

    ``lost``, ``held``, ``doubled`` and ``invented`` count them.
    """

    def __init__(
        self,
        waker: Waker,
        *,
        seed: int,
        lose: float = 0.0,
        late: float = 0.0,
        late_by: int = 5,
        double: float = 0.0,
        invent: float = 0.0,
    ) -> None:
        for name, chance in {
            "lose": lose,
            "late": late,
            "double": double,
            "invent": invent,
        }.items():
            if not 0 <= chance <= 1:
                raise ValueError(f"{name} is a probability from 0 to 1, not {chance}")
        if late_by < 1:
            raise ValueError(f"late_by counts later wakes, at least 1, not {late_by}")
        self._waker = waker
        self._random = random.Random(seed)  # noqa: S311  (repeatable, not secret)
        self._lose, self._late, self._late_by = lose, late, late_by
        self._double, self._invent = double, invent
        self._lock = threading.RLock()
        self._waiting: list[tuple[int, str]] = []
        self._keys: dict[str, int] = {}
        self._count = 0
        self.lost = self.held = self.doubled = self.invented = 0

    def wake(self, key: str) -> None:
        """Pass *key* on, or not, or twice, or later, and what was due besides."""
        with self._lock:
            self._count += 1
            going = [k for due, k in self._waiting if due <= self._count]
            self._waiting = [w for w in self._waiting if w[0] > self._count]
            if self._happens(self._lose):
                self.lost += 1
            elif self._happens(self._late):
                self.held += 1
                due = self._count + self._random.randint(1, self._late_by)
                self._waiting.append((due, key))
            else:
                going.append(key)
                if self._happens(self._double):
                    self.doubled += 1
                    going.append(key)
            if self._keys and self._happens(self._invent):
                self.invented += 1
                going.append(self._random.choice(list(self._keys)))
        self._pass_on(going)

    def release(self) -> None:
        """Let every wake go that is held back."""
        with self._lock:
            going = [key for _, key in self._waiting]
            self._waiting.clear()
        self._pass_on(going)

    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As the other waker, which the listener hears through this one."""
        with self._lock:
            self._keys[key] = self._keys.get(key, 0) + 1
        stop_other = self._waker.listen(key, callback)
        running = True

        def stop() -> None:
            nonlocal running
            stop_other()
            with self._lock:
                if running:
                    running = False
                    self._keys[key] -= 1
                    if not self._keys[key]:
                        del self._keys[key]

        return stop

    def close(self) -> None:
        """Drop what is held back and close the other waker."""
        with self._lock:
            self._waiting.clear()
        self._waker.close()

    def _happens(self, chance: float) -> bool:
        return self._random.random() < chance

    def _pass_on(self, keys: list[str]) -> None:
        for key in keys:
            self._waker.wake(key)
