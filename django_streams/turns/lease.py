"""A turn's lease: the sign that somebody is running it."""

from __future__ import annotations

from dataclasses import replace

from . import clock, door, queue
from .records import TurnRecord, TurnStatus


def renew(turn: TurnRecord, lease: float) -> bool:
    """Extend the lease to *lease* seconds from now; whether to stop the turn.

    Raises :class:`~.queue.Lost` when the turn is no longer this runner's.
    """
    mine = queue.turns().filter(
        pk=turn.pk, epoch=turn.epoch, status=TurnStatus.RUNNING.value
    )
    if not mine.update(lease_expires_at=clock.after(door.alias(), lease)):
        raise queue.Lost
    return mine.exclude(cancel_requested=None).exists()


def take_over(turn: TurnRecord, lease: float) -> TurnRecord | None:
    """The turn as ours, if its lease is over and nobody else was first.

    The epoch moves: the runner that let the lease lapse can no longer end the
    turn, whether it is gone or only slow.
    """
    alias = door.alias()
    lapsed = queue.turns().filter(
        pk=turn.pk,
        epoch=turn.epoch,
        status=TurnStatus.RUNNING.value,
        lease_expires_at__lt=clock.now(alias),
    )
    if not lapsed.update(
        epoch=turn.epoch + 1, lease_expires_at=clock.after(alias, lease)
    ):
        return None
    return replace(turn, epoch=turn.epoch + 1)
