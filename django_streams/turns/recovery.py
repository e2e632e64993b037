"""Turns whose runner vanished, or is too slow with its lease to be trusted.

Whoever meets such a turn decides, in the database: it is run again by whoever
takes it first, as its agent's ``on_interrupted`` says, or it ends as an error
that is told to live and later readers, with what was stored of the reply kept
as its message. A turn that was asked to stop ends as stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from django.db.models import F

from .. import conf, ids
from ..exceptions import StreamFencedError
from ..messages import sanitise
from ..models import Turn
from ..store import outages
from ..store.base import CANCELLED, INTERRUPTED
from . import agents, answering, clock, door, ends, hooks, lease, queue, transcript
from .agents import Make
from .lease import Taken
from .records import ConversationRef, Ending, TurnRecord, TurnStatus, UIMessage
from .replay import stored_message, turn_streams
from .responses import get_responses
from .run import INTERRUPTED_TEXT, Run

logger = logging.getLogger("django_streams.turns")


async def sweep(ref: ConversationRef) -> bool:
    """Look after a conversation whose running turn may have lost its runner,
    or whose completion hook nobody called.

    True if there is now something for a runner to do: kick one. Of several
    processes that meet a turn one takes it. Cancelled in the middle: the lease
    that was taken lapses too, and the next sweep goes on.
    """
    make = agents.find(ref.agent)
    if make is None:
        return False
    await get_responses().sweep(ref)
    turn = await door.run(_lapsed, ref)
    if turn is None:
        return False
    if not turn.cancel_requested and _attempts(make) >= turn.attempt - turn.handovers:
        # Left as it is, for whoever is first to run it: see take_up.
        return True
    await _fail(ref, turn)
    return True


async def end_stale(seconds: float, *, limit: int = 500) -> int:
    """End the turns that nobody has run for so long, whatever their agents say;
    how many. What was stored of their replies is kept."""
    stale = await door.run(find_stale, seconds, limit)
    for ref, turn in stale:
        try:
            await _fail(ref, turn)
        except Exception:
            # The next one's turn must not wait for it.
            logger.exception("turn %r of %s was not ended", turn.request_id, ref.agent)
    await get_responses().idle()
    return len(stale)


def find_stale(
    seconds: float, limit: int
) -> Sequence[tuple[ConversationRef, TurnRecord]]:
    """Up to *limit* running turns whose lease was over so long ago."""
    rows = (
        queue.turns()
        .filter(status=TurnStatus.RUNNING.value)
        .annotate(stale_since=clock.Later("lease_expires_at", seconds))
        .filter(stale_since__lt=clock.now(door.alias()))
        .select_related("conversation")[:limit]
    )
    return [
        (
            ConversationRef(
                row.conversation.agent,
                row.conversation.name,
                row.conversation.owner_key,
            ),
            queue.record(row),
        )
        for row in rows
    ]


def writes(stream_id: str) -> bool:
    """Whether a running turn's reply goes to that stream."""
    running = queue.turns().filter(status=TurnStatus.RUNNING.value)
    return running.filter(stream=stream_id).exists()


async def take_up(ref: ConversationRef, make: Make) -> Run | None:
    """The conversation's lapsed turn, to be run again by this process; None if
    there is none, or somebody else took it."""
    turn = await door.run(_lapsed, ref)
    if turn is None:
        return None
    agent = make()
    taken = await door.run(
        lease.recover,
        ref,
        turn,
        conf.get().TURN_LEASE,
        ids.new_id(),
        attempts=_attempts(make),
        restart=agent.on_interrupted == "restart",
    )
    if taken is None:
        return None
    logger.warning(
        "turn %r of %s lost its runner; attempt %d",
        taken.turn.request_id,
        ref.agent,
        taken.turn.attempt,
    )
    if taken.log is None and taken.turn.stream:
        # Settled meanwhile, as gc does with what is silent for long.
        await _end(ref, taken)
        return None
    return Run(ref, taken, make)


def _lapsed(ref: ConversationRef) -> TurnRecord | None:
    alias = door.alias()
    rows = Turn.objects.using(alias).filter(
        running_of__key=ref.key, lease_expires_at__lt=clock.now(alias)
    )
    if outages.recent(alias, conf.get().TURN_LEASE):
        # Its runner could not renew the lease, and gets the time to come first. One
        # that gave it up does not come.
        rows = rows.filter(lease_expires_at=F("started_at"))
    row = rows.first()
    return None if row is None else queue.record(row)


def _attempts(make: Make) -> int:
    """How many runs may have failed before the turn does; -1: nor may one have been
    given back, for a second run is what the agent does not want."""
    agent = make()
    return -1 if agent.on_interrupted == "fail" else agent.max_recovery_attempts


async def _fail(ref: ConversationRef, turn: TurnRecord) -> None:
    taken = await door.run(
        lease.take_over, ref, turn, conf.get().TURN_LEASE, ids.new_id()
    )
    if taken is None:
        return
    logger.warning(
        "turn %r of %s lost its runner; ended as interrupted",
        turn.request_id,
        ref.agent,
    )
    await _end(ref, taken)


async def _end(ref: ConversationRef, taken: Taken) -> None:
    turn = taken.turn
    stopped = turn.cancel_requested
    message = base = await door.run(_base, turn) if turn.continuation else None
    if turn.stream:
        message = await stored_message(turn_streams(door.alias()), turn, base)
    known: Collection[str] = ()
    if message is not None:
        pk = turn.conversation_pk
        whole, known = await door.run(answering.answered, pk, message)
        message = await _sanitised(ref, whole)
    ending = Ending(
        status=TurnStatus.ABORTED if stopped else TurnStatus.ERRORED,
        error=None if stopped else INTERRUPTED_TEXT,
        message=message,
        answered=known,
    )

    def commit() -> None:
        ends.finish(turn, ref.wake_key, ending)

    writer = None if taken.log is None else taken.log.writer()
    reason = CANCELLED if stopped else INTERRUPTED
    try:
        if writer is None or not await writer.aerror(reason, commit=commit):
            await door.run(ends.finish_alone, turn, ref.wake_key, ending)
    except (queue.Lost, StreamFencedError):
        logger.info("turn %r was ended by another process", turn.request_id)
        return
    if ending.is_heard(turn):
        get_responses().call(ref, turn, ended=ending)


async def _sanitised(ref: ConversationRef, message: UIMessage) -> UIMessage | None:
    """The message as it may be stored; None if the agent's hook fails."""
    make = agents.find(ref.agent)
    message = sanitise(message)
    try:
        if make is not None:
            message = await hooks.call(make().sanitize_message, message)
    except Exception:
        logger.exception("an interrupted reply of %s was not saved", ref.agent)
        return None
    return message


def _base(turn: TurnRecord) -> UIMessage | None:
    """The message that a continuation adds to."""
    messages = transcript.load(turn.conversation_pk)
    return next((m for m in messages if m.get("id") == turn.message_id), None)
