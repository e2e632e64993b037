"""Clearing a conversation: the rows in one transaction, then the logs."""

from __future__ import annotations

import contextlib

from django.db.models import QuerySet

from ..exceptions import StreamLiveError
from ..models import Turn
from . import door, ends, queue
from .records import ConversationRef
from .replay import turn_streams


async def clear(ref: ConversationRef, connection: str = "") -> None:
    """Delete messages and logs, skip what is queued and stop what runs.

    *connection* names who asked, so that it is not told. The log of a running
    turn goes with the turn's end. Cancelled: some logs are left to gc.
    """
    await door.run(ends.clear, ref, connection)
    streams = turn_streams(door.alias())
    logs = await door.run(_logs, ref)
    for stream in logs:
        with contextlib.suppress(StreamLiveError):
            await streams.adelete(stream)
    await door.run(_forget, ref, logs)


def _with_logs(ref: ConversationRef) -> QuerySet[Turn]:
    over = queue.turns().filter(conversation__key=ref.key, running_of=None)
    return over.exclude(stream="")


def _logs(ref: ConversationRef) -> list[str]:
    return list(_with_logs(ref).values_list("stream", flat=True))


def _forget(ref: ConversationRef, logs: list[str]) -> None:
    _with_logs(ref).filter(stream__in=logs).update(stream="")
