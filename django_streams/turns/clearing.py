"""Clearing a conversation: the rows in one transaction, then the logs."""

from __future__ import annotations

import contextlib

from django.db.models import QuerySet

from ..exceptions import StreamLiveError
from ..models import Turn
from . import door, ends, queue
from .records import ConversationRef
from .replay import turn_streams


def clear(ref: ConversationRef, connection: str = "") -> None:
    """Delete messages and logs, skip what is queued and stop what runs.

    *connection* names who asked, so that it is not told. The log of a running
    turn goes with the turn's end. Done twice it is the same as once.
    """
    ends.clear(ref, connection)
    streams = turn_streams(door.alias())
    logs = list(_with_logs(ref).values_list("stream", flat=True))
    for stream in logs:
        with contextlib.suppress(StreamLiveError):
            streams.delete(stream)
    _with_logs(ref).filter(stream__in=logs).update(stream="")


def _with_logs(ref: ConversationRef) -> QuerySet[Turn]:
    over = queue.turns().filter(conversation__key=ref.key, running_of=None)
    return over.exclude(stream="")
