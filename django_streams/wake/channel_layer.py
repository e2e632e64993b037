"""Wakes between processes, through a channel layer.

A channel layer loses messages when it is busy, forgets who listens when Redis
restarts, and hangs when Redis does. It is used accordingly: it carries a key
and the name of the sender, from one thread a process, with a timeout around
every call, and after a failure everything is made anew.
"""

from __future__ import annotations

from collections.abc import Callable

from channels.layers import InMemoryChannelLayer, channel_layers
from django.utils.module_loading import import_string

from .local import LocalWaker
from .remote import RemoteWaker
from .session import Layer, LayerSession


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


class ChannelLayerWaker(RemoteWaker):
    """Wakes its own process directly, the others through a channel layer.

    *make_layer* is called in the waker's thread, again after each failure and
    after a fork. A layer in memory lives in one event loop: through it a waker
    reaches only itself, and that without it.
    """

    def __init__(
        self, local: LocalWaker, make_layer: Callable[[], Layer], name: str = "default"
    ) -> None:
        super().__init__(
            local,
            f"Channel layer {name!r}",
            lambda marks, thread: LayerSession(make_layer(), marks, local, thread),
        )
