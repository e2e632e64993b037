"""The completion hook of a turn: who calls it is decided in the database.

A turn that began a reply ends with ``respond_by`` set, in the transaction of
its end. Whoever sets it back takes the call, and only one can: the process
that ended the turn at once, any other once the time is over. So the hook is
called exactly once whatever dies between the end's commit and the call. It is
taken before it is called: a process that dies inside of the hook leaves it
half done, and nobody calls it again.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from functools import partial

from django.db.models import QuerySet

from .. import codec, ids
from ..models import Message, Turn
from . import agents, clock, door, hooks, queue
from .agents import Agent, TurnResult
from .records import ConversationRef, Ending, TurnRecord, TurnStatus, UIMessage
from .replay import stored_message, turn_streams

logger = logging.getLogger("django_streams.turns")

_MOST = 100
"""Overdue calls that one look takes."""


def overdue(alias: str) -> QuerySet[Turn]:
    """Turns whose hook nobody has called in time."""
    return queue.turns().filter(respond_by__lt=clock.now(alias))


def take(turn: TurnRecord, token: str, *, late: bool) -> bool:
    """Whether the call is ours from now on; *token* is this call's own.

    With *late* only if its runner had time enough.
    """
    rows = queue.turns().filter(pk=turn.pk)
    due = rows.exclude(respond_by=None)
    if late:
        due = due.filter(respond_by__lt=clock.now(door.alias()))
    due.update(respond_by=None, runner=token)
    # Asked and not counted: the answer to an earlier call may have been lost.
    return rows.filter(runner=token).exists()


class Responses:
    """The hooks that one event loop calls, in order for each conversation.

    They are no part of a run: a hook may wait for the conversation's next turn.
    """

    def __init__(self) -> None:
        # The newest of each conversation; each holds the one before it.
        self._calls: dict[str, asyncio.Task[None]] = {}

    def call(
        self,
        ref: ConversationRef,
        turn: TurnRecord,
        *,
        ended: Ending | None = None,
        agent: Agent | None = None,
    ) -> None:
        """Call the hook of an ended turn, unless another process did.

        *ended* is how this process just ended it, with *agent* if it ran it;
        without it the call is made only if it is overdue.
        """
        result = None if ended is None else _result(turn, ended)
        before = self._calls.get(ref.key)
        task = asyncio.get_running_loop().create_task(
            self._call(before, ref, turn, agent, result), context=contextvars.Context()
        )
        self._calls[ref.key] = task
        task.add_done_callback(partial(self._called, ref))

    async def sweep(self, ref: ConversationRef) -> bool:
        """Call what is overdue in a conversation; whether anything was."""
        if agents.find(ref.agent) is None or ref.key in self._calls:
            return False
        late = await door.run(_overdue_of, ref)
        for turn in late:
            self.call(ref, turn)
        return bool(late)

    async def idle(self) -> None:
        """Return when no hook is being called. Cancelled: they go on."""
        while self._calls:
            await asyncio.wait(list(self._calls.values()))

    def _called(self, ref: ConversationRef, task: asyncio.Task[None]) -> None:
        if self._calls.get(ref.key) is task:
            del self._calls[ref.key]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Not taken: it is overdue soon, and whoever meets it calls it.
            logger.error("on_chat_response of %s waits", ref.agent, exc_info=error)

    async def _call(
        self,
        before: asyncio.Task[None] | None,
        ref: ConversationRef,
        turn: TurnRecord,
        agent: Agent | None,
        result: TurnResult | None,
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        make = agents.find(ref.agent)
        late = result is None
        if agent is None and make is not None:
            agent = make()
        if agent is None:
            return
        if result is None:
            result = await stored_result(turn)
        if not await door.run(take, turn, ids.new_id(), late=late):
            return
        try:
            await hooks.call(agent.on_chat_response, result)
        except Exception:
            logger.exception(
                "on_chat_response of turn %r of %s failed", turn.request_id, ref.agent
            )


async def stored_result(turn: TurnRecord) -> TurnResult:
    """What the hook is told of a turn that another process ended."""
    message = await door.run(_stored, turn)
    if message is None and turn.stream:
        message = await stored_message(turn_streams(door.alias()), turn)
    ended = Ending(status=turn.status, message=message, error=turn.error)
    return _result(turn, ended)


def _result(turn: TurnRecord, ended: Ending) -> TurnResult:
    errored = ended.status is TurnStatus.ERRORED
    return TurnResult(
        request_id=turn.request_id,
        status="error" if errored else ended.status.value,
        message=ended.message,
        continuation=turn.continuation,
        error=ended.error,
    )


def _stored(turn: TurnRecord) -> UIMessage | None:
    text = (
        Message.objects.using(door.alias())
        .filter(
            conversation_id=turn.conversation_pk,
            message_key=ids.hash_key(turn.message_id),
        )
        .values_list("body", flat=True)
        .first()
    )
    return None if text is None else codec.decode(text)


def _overdue_of(ref: ConversationRef) -> Sequence[TurnRecord]:
    rows = overdue(door.alias()).filter(conversation__key=ref.key)
    return [queue.record(row) for row in rows.order_by("position")[:_MOST]]


_responses: dict[asyncio.AbstractEventLoop, Responses] = {}


def get_responses() -> Responses:
    """The hooks of the running loop."""
    loop = asyncio.get_running_loop()
    responses = _responses.get(loop)
    if responses is None:
        for other in [known for known in _responses if known.is_closed()]:
            del _responses[other]
        responses = _responses[loop] = Responses()
    return responses
