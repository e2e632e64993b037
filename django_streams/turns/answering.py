"""Answers to tool calls.

Everything happens under the lock of the conversation's row, so answers that come
at the same time to several processes are taken one after the other. An answer is
written into the stored message that has the call. While a turn runs whose reply
is not stored yet, the answer waits in the row for the turn's end.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from .. import codec
from ..messages import answers as changes
from ..messages.calls import calls_of
from ..messages.parts import UIMessage
from . import awaited, continuing, conversations, door, hooks, queue, transcript
from .agents import Agent
from .awaited import Answer
from .conversations import NO_LIMIT, Locked
from .records import ConversationRef, EventKind, TurnRecord, TurnStatus

MOST_WAITING: Final = 100
"""Answers that wait for one reply; what an honest client sends are a few."""


class Outdated(Exception):
    """The message has changed since it was proposed: propose it again."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A message as a change leaves it, and what is to be stored of it."""

    message: UIMessage | None
    stored: UIMessage | None

    def of(self, message: UIMessage | None) -> UIMessage | None:
        """What is stored of *message*; raises :class:`Outdated` for another one."""
        if message != self.message:
            raise Outdated
        return self.stored


async def propose(
    agent: Agent, conversation: ConversationRef, change: changes.Change, but: str = ""
) -> Proposal:
    """What *change* makes of the newest message that it changes, in the form in
    which *agent* has it stored; not of the message with the id *but*.

    Raises ``PublicError`` when the agent's ``sanitize_message`` fails.
    """
    message = await door.run(_changed, conversation, change, but)
    if message is None:
        return Proposal(None, None)
    [stored] = await hooks.sanitised(agent, [message])
    return Proposal(message, stored)


def _changed(
    ref: ConversationRef, change: changes.Change, but: str
) -> UIMessage | None:
    pk = conversations.find(ref)
    return None if pk is None else _change(pk, change, but)


def _change(pk: int, change: changes.Change, but: str = "") -> UIMessage | None:
    stored = transcript.load(pk)
    return changes.changed([one for one in stored if one["id"] != but], change)


def answer(
    ref: ConversationRef,
    given: Answer,
    proposal: Proposal,
    *,
    continues: bool,
    client_tools: list[Any] | None = None,
    user_key: str = "",
    owner: str = "",
) -> str | None:
    """Write an answer down; the request id of the continuation that it asks for.

    *proposal* is what :func:`propose` makes of it; raises :class:`Outdated`.
    *continues*: a continuation is wanted, which *owner*, a connection, will
    resume. *client_tools* replace the last ones.
    None: no continuation is wanted, or the call is not known or answered
    already; then nothing is changed and nobody is told.
    Raises :class:`StreamSerializationError` for an output that cannot be kept.
    """
    pk = conversations.find(ref)
    if pk is None:
        return None
    with door.atomic():
        held = conversations.lock(pk, ref.wake_key)
        taken = None if held is None else _take(held, given, proposal)
        if held is None or taken is None:
            return None
        if client_tools is not None:
            tools = codec.encode(client_tools, limit=NO_LIMIT, what="list of tools")
            awaited.rows(held).update(last_client_tools=tools)
        request_id = None
        if continues:
            request_id = continuing.want(
                held,
                user_key=user_key,
                owner=owner,
                sure=taken.written,
                message_id=taken.message_id,
                waits=taken.waits,
            )
        continuing.release(held, ref)
        return request_id


@dataclass(frozen=True, slots=True)
class Taken:
    """Where an answer went."""

    message_id: str
    written: bool
    """False: it waits for the end of the turn whose reply may have the call."""
    waits: bool
    """Whether the message has, or may have, other calls without an answer."""


def _take(held: Locked, given: Answer, proposal: Proposal) -> Taken | None:
    running = queue.turns().filter(running_of_id=held.pk).first()
    message = proposal.of(_change(held.pk, given.change))
    if message is not None:
        _write(held, message)
        waits = changes.is_half_answered([message])
        return Taken(message["id"], written=True, waits=waits)
    if any(given.call_id in calls_of(one) for one in transcript.load(held.pk)):
        # Answered already.
        return None
    if running is None or not running.stream or running.generation != held.generation:
        return None
    waiting = awaited.load(held)
    known = {one.call_id for one in waiting.answers}
    if given.call_id in known or len(waiting.answers) >= MOST_WAITING:
        return None
    waiting.answers.append(given)
    awaited.store(held, waiting)
    return Taken(running.message_id, written=False, waits=True)


def answered(
    conversation_pk: int, message: UIMessage
) -> tuple[UIMessage, frozenset[str]]:
    """A reply with the answers that wait for it, and the ids of their calls."""
    found = set()
    for given in awaited.peek(conversation_pk).answers:
        changed = changes.changed([message], given.change)
        if changed is not None:
            message = changed
            found.add(given.call_id)
    return message, frozenset(found)


def settle(
    held: Locked,
    message: UIMessage,
    known: Collection[str] = (),
    *,
    whole: bool = True,
) -> UIMessage:
    """A reply that is to be stored, with the answers that its calls got meanwhile.

    *known*: the calls whose answers it has already, see :func:`answered`. *whole*:
    no further call will come, so an answer without one is forgotten.
    """
    stored = transcript.find(held.pk, message["id"])
    if stored is not None:
        message = changes.carried_over(message, stored)
    waiting = awaited.load(held)
    early = []
    for given in waiting.answers:
        changed = changes.changed([message], given.change)
        if changed is not None or given.call_id in known:
            message = changed or message
            if waiting.wanted is not None and not waiting.wanted.sure:
                # A handler may give its message another id than the turn's.
                waiting.wanted = replace(
                    waiting.wanted, sure=True, message_id=message["id"]
                )
        elif not whole:
            early.append(given)
    if waiting.answers:
        waiting.answers = early
        awaited.store(held, waiting)
    return message


def settle_earlier(
    turn: TurnRecord, wake_key: str, change: changes.Change, proposal: Proposal
) -> UIMessage | None:
    """Write the output of a call that an earlier message made than the one that
    *turn* is writing; that message, and everybody is told.

    *proposal* is what :func:`propose` makes of it; raises :class:`Outdated`.
    None: the call is not known, or over already, or the conversation is cleared.
    Raises :class:`~.queue.Lost` when the turn is no longer this runner's.
    """
    with door.atomic():
        held = _hold(turn, wake_key)
        if held.generation != turn.generation:
            return None
        message = proposal.of(_change(held.pk, change, turn.message_id))
        if message is not None:
            _write(held, message)
        return message


def _write(held: Locked, message: UIMessage) -> None:
    transcript.upsert(held.pk, message)
    conversations.emit(held.pk, held.wake_key, EventKind.UPDATED, message=message["id"])


def _hold(turn: TurnRecord, wake_key: str) -> Locked:
    """The conversation's lock, if the turn is still this runner's."""
    held = conversations.lock(turn.conversation_pk, wake_key)
    mine = queue.turns().filter(
        pk=turn.pk, epoch=turn.epoch, status=TurnStatus.RUNNING.value
    )
    if held is None or not mine.exists():
        raise queue.Lost
    return held


def keep_partial(
    turn: TurnRecord, message: UIMessage, known: Collection[str] = ()
) -> None:
    """Store a reply that is being written, for it asks for an approval: who
    reloads the page can give it. Nobody is told: they see it live.

    Raises :class:`~.queue.Lost` when the turn is no longer this runner's.
    """
    with door.atomic():
        held = _hold(turn, "")
        if held.generation == turn.generation:
            transcript.upsert(held.pk, settle(held, message, known, whole=False))
