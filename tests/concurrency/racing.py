"""Work for processes that submit, run and stop turns at the same instants.

Times are ``time.monotonic()``, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from django.test import override_settings

from django_streams.chat import AIChatConsumer, Debounce, agent_routes
from django_streams.turns import conversations, queue
from django_streams.turns.policy import Concurrency
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef
from django_streams.turns.turn import Turn
from tests import process
from tests.integration.chatting import user_message

from .brood import Ready

OWNER = "u:1"
RIVALS = 3
"""Processes that submit at the same instant."""


@dataclass
class Lead:
    """How long a turn lives on after its word: shorter after one that was stopped,
    longer after one that completed. So the end comes when the stop does, however
    fast the machine is."""

    seconds: float = 0.05

    def learn(self, status: str) -> None:
        self.seconds *= 1.1 if status == "completed" else 0.9


LEAD = Lead()

TOGETHER = 45.0

PATIENCE = 30.0


def use(alias: str, **options: Any) -> None:
    """Everything on *alias*, found by the poll alone: for the whole process."""
    settings: dict[str, Any] = {"DATABASE": alias, "CHANNEL_LAYER": None} | options
    override_settings(DJANGO_STREAMS=settings).enable()


def mode(name: str) -> Concurrency:
    return Debounce(0) if name == "debounce" else cast(Concurrency, name)


def room(name: str, at: int) -> ConversationRef:
    return ConversationRef("racer", f"{name} {at}", OWNER)


def submit_at_once(
    ready: Ready, alias: str, folder: str, number: int, names: list[str], rounds: int
) -> list[float]:
    """One submit in each room, with those of the other processes; when it was."""
    use(alias)
    conversations.find(room("nothing", number))  # connects
    ready()
    times = []
    for at in range(rounds):
        for name in names:
            ref = room(name, at)
            message = user_message("x", f"u{number}")
            submission = Submission(
                request_id=f"q{number}",
                messages=[message],
                origin_ids=[message["id"]],
                concurrency=mode(name),
            )
            meet(Path(folder) / ref.name, number)
            times.append(time.monotonic())
            queue.submit(ref, submission)
    return times


def meet(place: Path, number: int) -> None:
    """Return at the same time as the other processes."""
    place.mkdir(exist_ok=True)
    (place / str(number)).touch()
    end = time.monotonic() + PATIENCE
    while len(list(place.iterdir())) < RIVALS:
        assert time.monotonic() < end
        time.sleep(0.0005)


class Racer(AIChatConsumer):
    """Says one word, tells that it did, and ends a while later."""

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        yield "word"
        told = json.dumps([turn.conversation.name, turn.request_id])
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(told.encode(), turn.body["tell"])
        await asyncio.sleep(LEAD.seconds)


async def finish_turns(
    ready: Ready, alias: str, tell: str, lanes: int, rounds: int
) -> list[list[Any]]:
    """Submit and run turns, several conversations at once; how each one ended."""
    use(alias, WAKE_DATABASE=alias)
    ready()

    async def lane(number: int) -> list[list[Any]]:
        where = f"lane {number}"
        chat = Racer.conversation(where, owner=OWNER)
        seen = []
        for at in range(rounds):
            name = f"q{at}"
            await chat.asubmit("go", request_id=name, body={"tell": tell})
            state = await chat.await_until_idle(PATIENCE)
            assert state is not None and state.request_id == name
            LEAD.learn(state.status)
            seen.append([where, name, state.status])
        return seen

    found = await asyncio.gather(*map(lane, range(lanes)))
    return [one for of in found for one in of]


async def stop_turns(
    ready: Ready, alias: str, tell: str, lanes: int, rounds: int
) -> list[list[Any]]:
    """Stop each of these turns as soon as it has said its word; what that gave."""
    use(alias, WAKE_DATABASE=alias)
    heard: asyncio.Queue[list[Any]] = asyncio.Queue()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(tell)
        ear.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(ear, lambda: heard.put_nowait(json.loads(ear.recv(4096))))
        ready()
        seen: list[list[Any]] = []

        async def stop(where: str, name: str) -> None:
            said = await Racer.conversation(where, owner=OWNER).astop(name)
            assert said is not None
            seen.append([where, name, said.status])

        async with asyncio.timeout(TOGETHER), asyncio.TaskGroup() as tasks:
            for _ in range(lanes * rounds):
                tasks.create_task(stop(*await heard.get()))
        loop.remove_reader(ear)
    return seen


class Stubborn(AIChatConsumer):
    """Does what the message says, and notes whether it was cancelled."""

    async def on_chat_message(self, turn: Turn) -> Any:
        if turn.text == "start":
            # No word yet: the reply has not begun.
            await asyncio.Event().wait()
        return getattr(self, turn.text)()

    async def stream(self) -> AsyncIterator[str]:
        yield "said"
        await asyncio.Event().wait()

    async def swallow(self) -> AsyncIterator[str]:
        yield "said"
        for _ in range(100):
            try:
                await asyncio.sleep(0.1)
                yield " too late"
            except asyncio.CancelledError:
                continue

    def block(self) -> Any:
        yield "said"
        time.sleep(3)
        yield " too late"


async def serve(alias: str, sweep: float) -> None:
    """Run the turns of ``Stubborn``, as a server of another process would."""
    from django_streams.turns import patrol
    from django_streams.turns.runner import get_runner

    use(alias, SWEEP_INTERVAL=sweep)
    agent_routes(Stubborn)
    patrol.start()
    get_runner()
    process.say("ready")
    await asyncio.to_thread(process.hear)
