"""Tells those who are to run a turn that there is one.

A call may be lost: a sweeper finds the turn (see ``backlog``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .. import ids
from ..wake import get_waker
from . import agents, door, offers
from .records import ConversationRef

QUEUE_KEY = ids.hash_key("django_streams", "turns")
"""Woken when a turn waits for a worker, or was given back by one."""

Kick = Callable[[ConversationRef], None]

_loops: dict[asyncio.AbstractEventLoop, Kick] = {}


def serve(loop: asyncio.AbstractEventLoop, kick: Kick) -> None:
    """From now on *loop* runs turns that are submitted in this process."""
    for other in [known for known in list(_loops) if known.is_closed()]:
        _loops.pop(other, None)
    _loops[loop] = kick


def announce(ref: ConversationRef) -> None:
    """Once the caller's transaction commits, tell of a queued turn.

    Raises ``ImproperlyConfigured`` at once when the package is missing that
    would carry it.
    """
    kind = agents.kind(ref.agent)
    if kind.by_task:
        offers.require(kind)
        door.on_commit(lambda: offers.offer_soon(ref))
    else:
        door.on_commit(lambda: _call(ref, kind))


def _call(ref: ConversationRef, kind: agents.Kind) -> None:
    here = kind is agents.Kind.INPROCESS and agents.find(ref.agent) is not None
    if not (here and _kick(ref)):
        get_waker().wake(QUEUE_KEY)


def _kick(ref: ConversationRef) -> bool:
    """Pass it to a loop of this process that serves; False if there is none."""
    for loop, kick in list(_loops.items()):
        if loop.is_running():
            try:
                loop.call_soon_threadsafe(kick, ref)
            except RuntimeError:
                continue  # closed since
            return True
    return False
