"""What must never be in the database, whatever was killed and when.

Each rule is a query for its violations. Rules about leases hold once every
lease that lapsed has been swept: give what runs that time before you ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from django.db.models import Count, Exists, F, Max, Min, OuterRef, Q, QuerySet, Sum

from ..models import ChunkBlock, ConversationEvent, Message, Stream, Turn
from ..types import StreamState
from . import clock, door
from .records import TurnStatus

_MOST = 20
"""Violations of one rule that are named."""


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    """A stable word for the rule."""
    what: str
    """Names the row, and what is wrong with it."""


def violations(*, alias: str | None = None, grace: float = 0.0) -> list[Violation]:
    """All rules, asked one after the other; empty when everything is as it must
    be. *grace*: seconds that a lapsed lease may wait for a sweep.

    At most twenty of each rule. Reads only; beside traffic a turn that is just
    being ended may be seen half done, so ask again before you believe it.
    """
    name = door.alias() if alias is None else alias
    return [
        Violation(rule, what)
        for rule, find in RULES.items()
        for what in list(find(name, grace))[:_MOST]
    ]


def _live_without_a_lease(alias: str, grace: float) -> Iterator[str]:
    """A stream that streams has a live lease, if it ever had one."""
    late = Q(lease_expires_at__lt=clock.ago(alias, grace))
    rows = Stream.objects.using(alias).filter(late, state=StreamState.STREAMING.value)
    for stream in rows.values_list("stream_id", flat=True)[:_MOST]:
        yield f"stream {stream!r} streams, and its lease is over"


def _running_without_a_lease(alias: str, grace: float) -> Iterator[str]:
    """A turn that runs has a live lease."""
    over = Q(lease_expires_at=None) | Q(lease_expires_at__lt=clock.ago(alias, grace))
    for turn in _turns(alias, TurnStatus.RUNNING).filter(over)[:_MOST]:
        yield f"{_name(turn)} runs, and its lease is over"


def _streaming_of_an_ended_turn(alias: str, grace: float) -> Iterator[str]:
    """A turn and its stream end together."""
    live = Stream.objects.using(alias).filter(
        stream_id=OuterRef("stream"), state=StreamState.STREAMING.value
    )
    ended = Turn.objects.using(alias).exclude(
        status__in=[TurnStatus.QUEUED.value, TurnStatus.RUNNING.value]
    )
    for turn in ended.exclude(stream="").filter(Exists(live))[:_MOST]:
        yield f"{_name(turn)} is {turn.status}, and its stream {turn.stream!r} streams"


def _said_without_a_message(alias: str, grace: float) -> Iterator[str]:
    """A turn that stored text has its message, whole or partial.

    Not in a conversation that was cleared since, and not where it is noted that
    the message was deleted on purpose.
    """
    spoke = Stream.objects.using(alias).filter(
        stream_id=OuterRef("stream"), cursor__gt=3
    )
    kept = Message.objects.using(alias).filter(
        conversation_id=OuterRef("conversation_id"),
        message_id=OuterRef("message_id"),
    )
    ended = _turns(
        alias, TurnStatus.COMPLETED, TurnStatus.ABORTED, TurnStatus.ERRORED
    ).filter(generation=F("conversation__generation"), message_gone=False)
    for turn in ended.filter(Exists(spoke), ~Exists(kept))[:_MOST]:
        yield f"{_name(turn)} is {turn.status} and spoke, and has no message"


def _gap_in_a_log(alias: str, grace: float) -> Iterator[str]:
    """A stream's blocks follow on each other, from 0 to its cursor."""
    counted = (
        ChunkBlock.objects.using(alias)
        .values("stream_id")
        .annotate(
            chunks=Sum("count"),
            first=Min("seq_from"),
            end=Max(F("seq_from") + F("count")),
            cursor=F("stream__cursor"),
            name=F("stream__stream_id"),
        )
        .exclude(first=0, chunks=F("cursor"), end=F("cursor"))
    )
    for row in counted[:_MOST]:
        yield (
            f"stream {row['name']!r} holds {row['chunks']} chunks from {row['first']} "
            f"to {row['end']}, and its cursor is {row['cursor']}"
        )
    empty = Stream.objects.using(alias).filter(cursor__gt=0, blocks=None)
    for name in empty.values_list("stream_id", flat=True)[:_MOST]:
        yield f"stream {name!r} has a cursor and no chunks"


def _events_out_of_order(alias: str, grace: float) -> Iterator[str]:
    """Events are numbered without a gap behind the oldest one kept."""
    counted = (
        ConversationEvent.objects.using(alias)
        .values("conversation_id")
        .annotate(
            kept=Count("pk"),
            first=Min("seq"),
            last=Max("seq"),
            cursor=F("conversation__event_cursor"),
        )
        .exclude(kept=F("last") - F("first") + 1, last=F("cursor"))
    )
    for row in counted[:_MOST]:
        yield (
            f"conversation {row['conversation_id']} keeps {row['kept']} events from "
            f"{row['first']} to {row['last']}, and its cursor is {row['cursor']}"
        )


RULES: dict[str, Callable[[str, float], Iterator[str]]] = {
    "stream-lease": _live_without_a_lease,
    "turn-lease": _running_without_a_lease,
    "turn-stream": _streaming_of_an_ended_turn,
    "turn-message": _said_without_a_message,
    "log-gap": _gap_in_a_log,
    "event-gap": _events_out_of_order,
}


def _turns(alias: str, *statuses: TurnStatus) -> QuerySet[Turn]:
    rows = Turn.objects.using(alias).filter(status__in=[s.value for s in statuses])
    return rows.select_related("conversation").order_by("pk")


def _name(turn: Turn) -> str:
    return f"turn {turn.request_id!r} of {turn.conversation}"
