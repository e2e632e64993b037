"""Turns in processes that die at named points, and the process that is left.

``doomed`` submits a turn and runs it until its point; ``survive`` follows all
rooms, as tabs do, and says what was shown when. They share a folder: the dying
note the time, hooks note that they were called.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from django_streams.chat import AIChatConsumer, agent_routes
from django_streams.testing.faults import FaultPoint, Faults
from django_streams.turns import door, orders, queue
from django_streams.turns.policy import CONTINUE
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef
from django_streams.turns.replay import turn_streams
from django_streams.turns.responses import get_responses
from django_streams.turns.runner import get_runner
from django_streams.turns.turn import Turn
from tests.integration.chatting import (
    MESSAGES,
    NONE,
    RESPONSE,
    RESUMING,
    Tab,
    message_text,
    user_message,
)

from .brood import Ready

WORDS = [f"w{at} " for at in range(20)]
WHOLE = "".join(WORDS)
PAUSE = 0.01
BASE = "Let me see. "
"""What a reply says before its tool call; a continuation adds the words to it."""
CONTINUED = "continued"
"""How the rooms are called whose turn is a continuation."""

WITHIN = 15.0
"""Seconds in which everything must be over."""


@dataclass
class Doom:
    """How this process is to die."""

    folder: Path = Path()
    room: str = ""
    word: int = -1
    in_the_hook: bool = False

    def die(self) -> None:
        (self.folder / f"{self.room}.died").write_text(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)


DOOM = Doom()


class Continuing(AIChatConsumer):
    """Says the words that ``turn.partial`` lacks."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        _note(turn.conversation.name, "began", turn.attempt)
        said = "" if turn.partial is None else message_text(turn.partial)
        said = said.removeprefix(base_of(turn.conversation.name))
        assert WHOLE.startswith(said), said
        for at in range(said.count(" "), len(WORDS)):
            if at == DOOM.word:
                DOOM.die()
            yield WORDS[at]
            await asyncio.sleep(PAUSE)

    async def on_chat_response(self, result: Any) -> None:
        text = "" if result.message is None else message_text(result.message)
        _note(result.request_id, "hook", [result.status, text])
        if DOOM.in_the_hook:
            DOOM.die()


class Restarting(Continuing):
    on_interrupted = "restart"


class Failing(Continuing):
    on_interrupted = "fail"


AGENTS: dict[str, type[AIChatConsumer]] = {
    agent.on_interrupted: agent for agent in (Continuing, Restarting, Failing)
}


def _note(room: str, what: str, value: Any) -> None:
    with (DOOM.folder / f"{room}.{what}").open("a") as file:
        file.write(json.dumps([time.monotonic(), value]) + "\n")


def noted(folder: Path, room: str, what: str) -> list[Any]:
    """What was noted, as (time, value)."""
    path = folder / f"{room}.{what}"
    return list(map(json.loads, path.read_text().splitlines())) if path.exists() else []


def base_of(room: str) -> str:
    return BASE if room.startswith(CONTINUED) else ""


def ref_of(policy: str, room: str) -> ConversationRef:
    return ConversationRef(AGENTS[policy].agent_name, room, "a:v1")


# --- the points ---------------------------------------------------------------

Matches = Callable[[FaultPoint], bool]


def _sql(moment: str, what: str, holding: str = "") -> Matches:
    def matches(point: FaultPoint) -> bool:
        return str(point) == f"{moment} {what}" and holding in point.sql

    return matches


def _then(first: Matches, second: Matches) -> Matches:
    """The first point that matches *second* once *first* was reached."""
    reached: list[FaultPoint] = []

    def matches(point: FaultPoint) -> bool:
        if first(point):
            reached.append(point)
            return False
        mine = bool(reached) and reached[0].thread == point.thread
        return mine and second(point)

    return matches


_TURN = "UPDATE django_streams_turn"
_CLAIM = '"attempt" = ('
_BEGIN = 'SET "stream" = '
_END = '"finished_at" = '
_TAKE = 'SET "runner" = '


def _claimed() -> Matches:
    return _sql("after", _TURN, _CLAIM)


def _ended() -> Matches:
    return _sql("after", _TURN, _END)


SQL: dict[str, Callable[[], Matches]] = {
    "before the claim commits": _claimed,
    "after the claim": lambda: _then(_claimed(), _sql("after", "COMMIT")),
    "after its stream was opened": lambda: _sql(
        "after", "INSERT django_streams_stream"
    ),
    "after the started event": lambda: _then(
        _sql("after", _TURN, _BEGIN),
        _sql("after", "INSERT django_streams_conversationevent"),
    ),
    "when the reply has begun": lambda: _then(
        _sql("after", _TURN, _BEGIN), _sql("after", "COMMIT")
    ),
    "before the cutover": lambda: _sql(
        "before", "UPDATE django_streams_stream", '"settle_token"'
    ),
    "inside of the cutover": _ended,
    "before the cutover commits": lambda: _then(_ended(), _sql("before", "COMMIT")),
    "after the cutover": lambda: _then(_ended(), _sql("after", "COMMIT")),
}
"""Where in the database's work; a statement's own commit is not told apart."""

HANDLER = {"at the first chunk": 1, "in the middle": 11, "after the last chunk": 19}
"""Before which word."""

HOOK = "in the hook"

POINTS = [*SQL, *HANDLER, HOOK]

NOT_CLAIMED = POINTS[:1]
NOT_BEGUN = POINTS[1:4]
ENDED = ["after the cutover", HOOK]


# --- the processes ------------------------------------------------------------


async def doomed(ready: Ready, folder: str, room: str, policy: str, point: str) -> None:
    """Run a turn until *point*."""
    DOOM.folder, DOOM.room = Path(folder), room
    DOOM.word = HANDLER.get(point, -1)
    DOOM.in_the_hook = point == HOOK
    agent_routes(*AGENTS.values())
    ref = ref_of(policy, room)
    if base_of(room):
        await door.run(queue.sync_messages, ref, _answered(room))
    ready()

    def die(point: FaultPoint, connection: BaseDatabaseWrapper) -> None:
        DOOM.die()

    only = SQL[point]() if point in SQL else lambda point: False
    with Faults("default", at=1, fault=die, only=only):
        # An order kicks the runner by itself.
        await door.run(_submit, ref, room)
        get_runner().kick(ref)
        await asyncio.sleep(WITHIN)


def _submit(ref: ConversationRef, room: str) -> None:
    if base_of(room):
        orders.place(ref, orders.Order(request_id=room, trigger=CONTINUE))
        return
    question = user_message("x", f"u-{room}")
    submission = Submission(
        request_id=room, messages=[question], origin_ids=[question["id"]]
    )
    queue.submit(ref, submission)


def _answered(room: str) -> list[dict[str, Any]]:
    """A question, and a reply whose call has its result."""
    call = {"type": "tool-where", "toolCallId": "t1", "input": {}}
    answered = call | {"state": "output-available", "output": 1}
    parts = [{"type": "text", "text": BASE, "state": "done"}, answered]
    answer = {"id": f"a-{room}", "role": "assistant", "parts": parts}
    return [user_message("x", f"u-{room}"), answer]


@dataclass
class Shown:
    """What a tab that does as the official hook shows of a room."""

    base: str = ""
    text: str = ""
    error: str | None = None
    over: float | None = None

    def take(self, transcript: list[Any]) -> None:
        """A transcript takes the place of all that was shown."""
        self.text = "".join(message_text(message) for message in transcript[1:])

    async def follow(self, tab: Tab, room: str) -> None:
        while self.over is None:
            await self.hear(tab, room)

    async def hear(self, tab: Tab, room: str) -> None:
        frame = await tab.next(WITHIN)
        if frame["type"] == RESUMING:
            await tab.ack(room)
        elif frame["type"] == MESSAGES:
            self.take(frame["messages"])
        elif frame["type"] == RESPONSE:
            self._response(frame)

    def _response(self, frame: dict[str, Any]) -> None:
        if frame.get("error"):
            self.error = frame["body"]
        elif frame["body"] and not frame["done"]:
            chunk = json.loads(frame["body"])
            if chunk["type"] == "start":
                self.text = self.base
            self.text += chunk.get("delta", "")
        if frame["done"] and frame.get("outcome") != "recovering":
            self.over = time.monotonic()


async def survive(
    ready: Ready, folder: str, rooms: dict[str, str], late: float
) -> dict[str, Any]:
    """Follow the rooms to their end; of each what was shown, and its streams.

    *rooms* have a policy each; *late* seconds after the word a second visitor
    comes to each.
    """
    DOOM.folder = Path(folder)
    agent_routes(*AGENTS.values())
    here, word = asyncio.Barrier(len(rooms) + 1), asyncio.Event()

    async def watch(room: str, policy: str) -> Any:
        async with Tab(AGENTS[policy], room) as tab:
            await tab.ready()
            await here.wait()
            await word.wait()
            async with asyncio.timeout(WITHIN):
                live, over = Shown(base_of(room)), asyncio.Event()
                reading = asyncio.create_task(_read_all(room, over))
                second = asyncio.create_task(_visit(room, policy, late, over, live))
                await live.follow(tab, room)
                over.set()
                late_one = await second
                streams = await reading
                # Its call is overdue a lease after the turn's end.
                while streams and not noted(Path(folder), room, "hook"):
                    await asyncio.sleep(0.05)
        await get_responses().idle()
        return [room, vars(live), vars(late_one), streams]

    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch(*room)) for room in rooms.items()]
        await here.wait()
        await asyncio.to_thread(ready)
        word.set()
    names = ("live", "late", "streams")
    return {
        room: dict(zip(names, rest, strict=True))
        for room, *rest in (task.result() for task in watching)
    }


async def _visit(
    room: str, policy: str, late: float, over: asyncio.Event, live: Shown
) -> Shown:
    """Come later, and accept what is offered.

    Who comes between the start and the end may be offered nothing; it is told of
    the end like everybody.
    """
    await asyncio.sleep(late)
    shown = Shown(base_of(room))
    async with Tab(AGENTS[policy], room) as tab:
        # Who meets a lost turn is told first that it recovers.
        greeting = await tab.until(MESSAGES)
        shown.take(greeting["messages"])
        answer = await tab.probe()
        if answer["type"] == NONE:
            await over.wait()
            while (shown.text, shown.error) != (live.text, live.error):
                await shown.hear(tab, room)
            return shown
        if answer["type"] == RESUMING:
            await tab.ack(room)
        await shown.follow(tab, room)
    return shown


async def _read_all(room: str, over: asyncio.Event) -> list[Any]:
    """Read each stream of the room's turn as plain readers do, oldest first."""
    streams = turn_streams("default")
    reading: dict[str, asyncio.Task[Any]] = {}
    while True:
        last = over.is_set()
        for found in reversed(await streams.alist(tag=room)):
            if found.stream_id not in reading:
                task = asyncio.create_task(_read(found.stream_id))
                reading[found.stream_id] = task
        if last:
            return await asyncio.gather(*reading.values())
        await asyncio.sleep(0.02)


async def _read(stream_id: str) -> Any:
    streams = turn_streams("default")
    text, seqs = "", []
    async with aclosing(streams.aread(stream_id)) as chunks:
        async for seq, chunk in ((c.seq, c.chunk) async for c in chunks):
            seqs.append(seq)
            text += chunk.get("delta", "")
    assert seqs == list(range(len(seqs))), seqs
    status = await streams.astatus(stream_id)
    assert status is not None
    return [status.state, status.error, text, time.monotonic()]
