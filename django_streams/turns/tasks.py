"""Runs one turn by its id, for the task queues of others."""

from __future__ import annotations

import asyncio
import logging

from django.core.exceptions import ImproperlyConfigured

from .. import conf
from . import agents, door, offers, queue, recovery, runner
from .records import ConversationRef, TurnStatus
from .responses import get_responses

logger = logging.getLogger("django_streams.turns")


async def run_turn(turn_pk: int) -> ConversationRef | None:
    """Run what is to be run next of that turn's conversation, usually itself.

    At most one turn, and none where another one runs or where it is over: a
    task that comes twice or late does nothing. Returns the conversation if there was
    something to run. Raises ``ImproperlyConfigured`` for an agent that this
    process cannot find. Cancelled: nothing is settled, the lease lapses and
    whoever meets the turn next decides.
    """
    found = await door.run(_find, turn_pk)
    if found is None:
        return None
    ref, conversation_pk = found
    if agents.find(ref.agent) is None:
        await asyncio.to_thread(agents.discover)
    if (make := agents.find(ref.agent)) is None:
        raise ImproperlyConfigured(
            f"no agent is called {ref.agent!r} here; known: {agents.names()}. Route "
            f"it, or name its class in {conf.NAME}['AGENTS']"
        )
    await door.run(offers.begun, turn_pk)
    await recovery.sweep(ref)
    run = await runner.take(ref, conversation_pk, make)
    if run is not None:
        await runner.attend(ref, run)
    # The loop ends with this task, and the hooks that it calls with the loop.
    await get_responses().idle()
    return ref if run is not None else None


def _find(turn_pk: int) -> tuple[ConversationRef, int] | None:
    rows = queue.turns().filter(
        pk=turn_pk, status__in=[TurnStatus.QUEUED.value, TurnStatus.RUNNING.value]
    )
    row = rows.values_list(
        "conversation__agent",
        "conversation__name",
        "conversation__owner_key",
        "conversation_id",
    ).first()
    return None if row is None else (ConversationRef(*row[:3]), row[3])
