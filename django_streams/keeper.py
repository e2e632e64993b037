"""Keeps this process's writers: leases renewed, requests to stop heard.

One daemon thread a process. It renews the lease of every registered writer
each third of its length, and asks for all of them together, once per
``POLL_MAX``, whether somebody asked their producers to stop. A wake only makes
it ask sooner.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Protocol

from django.db import connections

from . import conf, ids
from .exceptions import StreamsError
from .wake.base import Waker

logger = logging.getLogger("django_streams.keeper")

CONTROL_KEY = ids.hash_key("django_streams", "cancel")
"""Woken by every request to stop; all keepers listen, requests are rare."""

_RENEWALS_PER_LEASE = 3
"""Two may be lost before a lease lapses."""

_MOST_IDS = 500
"""Ids in one query; SQLite takes 999 parameters on Django 5.2."""


class Kept(Protocol):
    """What a keeper needs of a writer; it must be hashable and weakly held."""

    @property
    def alias(self) -> str: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def keeps(self) -> bool: ...
    @property
    def key(self) -> str: ...
    @property
    def lease(self) -> float | None: ...
    @property
    def pk(self) -> int: ...
    @property
    def renewed(self) -> float: ...
    @property
    def renews(self) -> bool: ...
    @property
    def stream_id(self) -> str: ...

    def keep_alive(self) -> None: ...
    def ask_cancelled(self, pks: Sequence[int]) -> set[int]: ...
    def note_cancelled(self) -> None: ...


class Keeper:
    """Writers are held weakly: one that is dropped lets its lease lapse."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writers: weakref.WeakSet[Kept] = weakref.WeakSet()
        self._due: weakref.WeakKeyDictionary[Kept, float] = weakref.WeakKeyDictionary()
        self._missed: weakref.WeakSet[Kept] = weakref.WeakSet()
        self._away: set[str] = set()
        """The databases that did not answer the last time."""
        """Those whose last renewal failed; used by the one thread only."""
        self._poke = threading.Event()
        self._thread: threading.Thread | None = None
        self._heard: weakref.WeakSet[Waker] = weakref.WeakSet()

    def add(self, writer: Kept, waker: Waker) -> None:
        """Look after *writer* until it settles, is refused or is dropped."""
        with self._lock:
            self._writers.add(writer)
            if writer.lease is not None and writer.renews:
                self._due[writer] = time.monotonic() + self._interval(writer)
            if waker not in self._heard:
                self._heard.add(waker)
                waker.listen(CONTROL_KEY, self._poke.set)
            if writer.keeps and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="django-streams-keeper", daemon=True
                )
                self._thread.start()
        if writer.lease is not None:
            self._poke.set()

    def remove(self, writer: Kept) -> None:
        with self._lock:
            self._writers.discard(writer)
            self._due.pop(writer, None)

    def cancelled_here(self, alias: str, key: str) -> None:
        """Tell this process's writers of a stream without asking the database."""
        with self._lock:
            writers = list(self._writers)
        for writer in writers:
            if writer.key == key and writer.alias == alias:
                writer.note_cancelled()

    @staticmethod
    def _interval(writer: Kept) -> float:
        assert writer.lease is not None
        return writer.lease / _RENEWALS_PER_LEASE

    def _run(self) -> None:
        try:
            self._keep()
        finally:
            connections.close_all()

    def _keep(self) -> None:
        asked = 0.0
        while True:
            with self._lock:
                kept = [writer for writer in self._writers if writer.keeps]
                if not kept:
                    # add() starts the next thread under this lock.
                    self._thread = None
                    return
                due = min(self._due.values(), default=float("inf"))
            now = time.monotonic()
            wait = min(due, asked + conf.get().POLL_MAX) - now
            del kept
            poked = self._poke.wait(max(0.0, wait))
            self._poke.clear()
            now = time.monotonic()
            if poked or now >= asked + conf.get().POLL_MAX:
                self._ask()
                asked = now
            self._renew(now)

    def _renew(self, now: float) -> None:
        with self._lock:
            # An append extends the lease as well: who says much renews nothing.
            late = []
            for writer in [writer for writer, due in self._due.items() if due <= now]:
                due = writer.renewed + self._interval(writer)
                if due <= now:
                    late.append(writer)
                    due = now + self._interval(writer)
                self._due[writer] = due
        for writer in late:
            try:
                writer.keep_alive()
                self._missed.discard(writer)
            except StreamsError as error:
                # Fenced or closed: the producer hears it at its next append.
                logger.info("lease of %r not renewed: %s", writer.stream_id, error)
                self.remove(writer)
            except Exception as error:
                # One failed renewal must not hold up those of other streams, so
                # it is not retried here: the next one is due soon. Said once an
                # outage and stream.
                level = logging.DEBUG if writer in self._missed else logging.WARNING
                self._missed.add(writer)
                logger.log(
                    level, "lease of %r not renewed: %s", writer.stream_id, error
                )

    def _ask(self) -> None:
        with self._lock:
            writers = [w for w in self._writers if w.keeps and not w.cancelled]
        for alias in {writer.alias for writer in writers}:
            here = [writer for writer in writers if writer.alias == alias]
            for start in range(0, len(here), _MOST_IDS):
                some = here[start : start + _MOST_IDS]
                try:
                    stopped = some[0].ask_cancelled([writer.pk for writer in some])
                except Exception as error:
                    level = logging.DEBUG if alias in self._away else logging.WARNING
                    self._away.add(alias)
                    logger.log(level, "could not ask who must stop: %s", error)
                    continue
                self._away.discard(alias)
                for writer in some:
                    if writer.pk in stopped:
                        writer.note_cancelled()


_keeper: Keeper | None = None
_keeper_lock = threading.Lock()


def get_keeper() -> Keeper:
    """This process's keeper; a forked child gets its own, without writers."""
    global _keeper
    with _keeper_lock:
        if _keeper is None:
            _keeper = Keeper()
        return _keeper


def _forget() -> None:
    # The parent's writers are the parent's to keep alive, not the child's.
    global _keeper, _keeper_lock
    _keeper = None
    _keeper_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)
