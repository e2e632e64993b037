"""Turns as processes leave them that are killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django_streams.turns import door, queue
from django_streams.turns.queue import Submission
from django_streams.turns.records import TurnRecord
from django_streams.turns.replay import turn_streams

from .chatting import RESPONSE, RESUMING, Tab, ref_of, turn_of, user_message


async def abandoned(
    agent: Any,
    *words: str,
    lease_seconds: float = 0.0,
    attempt: int = 1,
    finished: bool = False,
    message_id: str = "a1",
    origin: str = "u-q1",
    then: Sequence[dict[str, Any]] = (),
) -> TurnRecord:
    """A running turn as a process leaves it that was killed after *words* and
    the chunks *then*."""
    ref = ref_of(agent, "room")
    submission = Submission(
        request_id="q1",
        messages=[user_message("x", origin)],
        origin_ids=[origin],
    )
    submitted = await door.run(queue.submit, ref, submission)
    turn = await door.run(
        queue.claim,
        submitted.turn.conversation_pk,
        message_id="a1",
        lease=lease_seconds,
    )
    assert turn is not None
    await door.run(queue.turns().update, attempt=attempt)
    if not words:
        return turn
    streams = turn_streams(door.alias())
    writer = await streams.aopen(
        "s-" + agent.agent_name, tag="q1", lease=lease_seconds or 0.01, on_lapse="wait"
    )
    await door.run(queue.begin, turn, ref.wake_key, stream=writer.stream_id)
    await writer.aextend(
        [
            {"type": "start", "messageId": message_id},
            {"type": "text-start", "id": "q1"},
            *({"type": "text-delta", "id": "q1", "delta": word} for word in words),
            *(
                [{"type": "text-end", "id": "q1"}, {"type": "finish"}]
                if finished
                else ()
            ),
            *then,
        ]
    )
    begun: TurnRecord = await turn_of(agent)
    return begun


async def accept(tab: Tab) -> None:
    """Accept the offer of a reply, and wait for what there is of it."""
    await tab.until(RESUMING)
    await tab.ack()
    await tab.until(RESPONSE, replayComplete=True)
