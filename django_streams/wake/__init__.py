"""Wakes: hints that a stream changed, so that a reader need not wait for the poll.

Nothing depends on a wake arriving. ``docs/explanation/wakes.md`` says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.core.signals import setting_changed

from .. import conf
from .base import Waker
from .local import LocalWaker
from .remote import RemoteWaker, SeveralWakers

__all__ = ["LocalWaker", "Waker", "get_waker"]

# By process id: a forked child makes its own, without a lock that another thread
# may have held at the fork. What was the parent's is kept and not used.
_local: dict[int, LocalWaker] = {}
_current: dict[int, Waker] = {}


def get_waker() -> Waker:
    """The waker of this process, made at first use; any thread.

    Local, through the channel layer ``DJANGO_STREAMS["CHANNEL_LAYER"]`` if there
    is one that leaves the process, and through PostgreSQL if ``WAKE_DATABASE``
    names it. Neither starts a thread nor connects: the first wake or listener
    does. Made anew after a fork and when the settings change (the listeners in
    this process stay). ``ImproperlyConfigured`` for a ``WAKE_DATABASE`` that
    cannot do it.
    """
    pid = os.getpid()
    waker = _current.get(pid)
    if waker is None:
        # Of two threads that get here together, one has made one for nothing.
        waker = _current.setdefault(pid, _make(pid))
    return waker


def _make(pid: int) -> Waker:
    local = _local.setdefault(pid, LocalWaker())
    carriers = list(_carriers(local))
    match carriers:
        case []:
            return local
        case [only]:
            return only
        case _:
            return SeveralWakers(local, carriers)


def _carriers(local: LocalWaker) -> Iterator[RemoteWaker]:
    settings = conf.get()
    if settings.CHANNEL_LAYER is not None:
        from .channel_layer import ChannelLayerWaker, layer_maker

        maker = layer_maker(settings.CHANNEL_LAYER)
        if maker is not None:
            yield ChannelLayerWaker(local, maker, settings.CHANNEL_LAYER)
    # A connection of its own would keep a test's database from being dropped.
    if settings.WAKE_DATABASE is not None and not settings.SINGLE_CONNECTION:
        from .postgres import PostgresWaker

        yield PostgresWaker(local, settings.WAKE_DATABASE)


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("CHANNEL_LAYERS", conf.NAME):
        waker = _current.pop(os.getpid(), None)
        # The local one goes on with its listeners under the next settings.
        if waker is not None and not isinstance(waker, LocalWaker):
            waker.close()


setting_changed.connect(_reset, dispatch_uid="django_streams.wake")
