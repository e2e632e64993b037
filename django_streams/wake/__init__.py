"""Wakes: hints that a stream changed, so that a reader need not wait for the poll.

Nothing depends on a wake arriving. ``docs/explanation/wakes.md`` says why.
"""

from __future__ import annotations

import os
from typing import Any

from django.core.signals import setting_changed

from .. import conf
from .base import Waker
from .local import LocalWaker

__all__ = ["LocalWaker", "Waker", "get_waker"]

# By process id: a forked child makes its own, without a lock that another thread
# may have held at the fork. What was the parent's is kept and not used.
_local: dict[int, LocalWaker] = {}
_current: dict[int, Waker] = {}


def get_waker() -> Waker:
    """The waker of this process, made at first use; any thread.

    Local, and through the channel layer ``DJANGO_STREAMS["CHANNEL_LAYER"]`` if
    there is one that leaves the process. Neither starts a thread nor connects:
    the first wake or listener does. Made anew after a fork and when the settings
    change (the listeners in this process stay).
    """
    pid = os.getpid()
    waker = _current.get(pid)
    if waker is None:
        # Of two threads that get here together, one has made one for nothing.
        waker = _current.setdefault(pid, _make(pid))
    return waker


def _make(pid: int) -> Waker:
    local = _local.setdefault(pid, LocalWaker())
    alias = conf.get().CHANNEL_LAYER
    if alias is None:
        return local
    from .channel_layer import ChannelLayerWaker, layer_maker

    maker = layer_maker(alias)
    return local if maker is None else ChannelLayerWaker(local, maker, alias)


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("CHANNEL_LAYERS", conf.NAME):
        waker = _current.pop(os.getpid(), None)
        # The local one goes on with its listeners under the next settings.
        if waker is not None and not isinstance(waker, LocalWaker):
            waker.close()


setting_changed.connect(_reset, dispatch_uid="django_streams.wake")
