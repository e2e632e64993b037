"""Wakes between processes, through a channel layer.

A channel layer loses messages when it is busy, forgets who listens when Redis
restarts, and hangs when Redis does. It is used accordingly: it carries a key
and the name of the sender, from one thread a process, with a timeout around
every call, and after a failure everything is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from channels.layers import InMemoryChannelLayer, channel_layers
from django.utils.module_loading import import_string

from .base import Waker
from .local import LocalWaker
from .marks import Marks
from .session import Layer, LayerSession
from .thread import LoopThread


def layer_maker(alias: str) -> Callable[[], Layer] | None:
    """How to make the layer *alias*; None if there is none that leaves the process.

    A layer of our own each time, not ``get_channel_layer()``: the one in Redis
    refuses two event loops in ``receive()`` at once, and after a fork parent and
    child would take each other's messages.
    """
    if alias not in channel_layers:
        return None
    try:
        backend = import_string(channel_layers.configs[alias]["BACKEND"])
    except (KeyError, ImportError):
        # Made in the thread: there the error is logged, with what it costs.
        return lambda: channel_layers.make_backend(alias)
    if isinstance(backend, type) and issubclass(backend, InMemoryChannelLayer):
        return None
    return lambda: channel_layers.make_backend(alias)


class ChannelLayerWaker(Waker):
    """Wakes its own process directly, the others through a channel layer.

    *make_layer* is called in the waker's thread, again after each failure and
    after a fork. A layer in memory lives in one event loop: through it a waker
    reaches only itself, and that without it.
    """

    def __init__(
        self, local: LocalWaker, make_layer: Callable[[], Layer], name: str = "default"
    ) -> None:
        self._local = local
        self._make_layer = make_layer
        self._name = name
        self._closed = False
        self._ends: dict[int, _End] = {}

    def wake(self, key: str) -> None:
        """Call the local listeners, then leave *key* to the sending thread."""
        self._local.wake(key)
        if not self._closed:
            self._end().send(key)

    def listen(self, key: str, callback: Callable[[], None]) -> Callable[[], None]:
        """As :meth:`Waker.listen`, and a call once the layer listens as well.

        Unless it does so already, for another listener. That call closes the gap
        between the read that follows ``listen`` and the moment from which other
        processes are heard.
        """
        stop_local = self._local.listen(key, callback)
        if self._closed:
            return stop_local
        end = self._end()
        end.follow(key)
        running = True

        def stop() -> None:
            nonlocal running
            stop_local()
            # An end made before a fork is the parent's, its lock too.
            if running and end.pid == os.getpid():
                running = False
                end.unfollow(key)

        return stop

    def close(self) -> None:
        """Send what is pending, leave the groups, end the thread; a few seconds."""
        self._closed = True
        end = self._ends.get(os.getpid())
        if end is not None:
            end.thread.close()

    def _end(self) -> _End:
        """This process's end of the layer, remade after a fork without a lock.

        The parent's is kept: letting go of it in the child would run finalisers
        of a selector that both processes share.
        """
        pid = os.getpid()
        end = self._ends.get(pid)
        if end is None:
            end = _End(pid, self._local, self._make_layer, self._name)
            end = self._ends.setdefault(pid, end)
        return end


class _End:
    """What one process has of the layer: its marks and its thread."""

    def __init__(
        self,
        pid: int,
        local: LocalWaker,
        make_layer: Callable[[], Layer],
        name: str,
    ) -> None:
        self.pid = pid
        self.marks = Marks()
        self.thread = LoopThread(
            f"Channel layer {name!r}",
            lambda thread: LayerSession(make_layer(), self.marks, local, thread),
        )

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
