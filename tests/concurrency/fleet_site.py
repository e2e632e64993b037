"""Agents that tell what became of each of their turns.

``Counting`` says as many numbered words as it was asked for and goes on where
an interrupted attempt ended; ``Noted`` says nothing and leaves a line in a file
for each run; ``Careless`` lets an interrupted turn fail.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from django.urls import include, path

from django_streams.chat import AIChatConsumer, agent_urls
from django_streams.turns.turn import Turn


def words(count: int, first: int = 0) -> str:
    """What ``Counting`` says when it is asked for *count* words."""
    return "".join(f"w{at} " for at in range(first, count))


def said(turn: Turn) -> int:
    """How many words an earlier attempt stored."""
    parts = [] if turn.partial is None else turn.partial["parts"]
    return sum(str(p["text"]).count(" ") for p in parts if p["type"] == "text")


class Counting(AIChatConsumer):
    """Asked "30 0.01", says 30 words, one each 10 ms."""

    allow_anonymous = True
    max_recovery_attempts = 1000

    async def on_chat_message(self, turn: Turn) -> AsyncIterator[str]:
        count, pause = turn.text.split()
        for at in range(said(turn), int(count)):
            yield f"w{at} "
            await asyncio.sleep(float(pause))


class Careless(Counting):
    on_interrupted = "fail"


class Noted(AIChatConsumer):
    """Appends "conversation request" to the file that ``DS_FLEET_NOTES`` names."""

    allow_anonymous = True

    async def on_chat_message(self, turn: Turn) -> None:
        note(turn.conversation.name, turn.request_id)


AGENTS = (Counting, Careless, Noted)

urlpatterns = [path("", include(agent_urls(*AGENTS)))]


def note(conversation: str, request_id: str) -> None:
    notes = os.open(os.environ["DS_FLEET_NOTES"], os.O_APPEND | os.O_WRONLY)
    try:
        # One write of a line: those of other processes stand whole beside it.
        os.write(notes, f"{conversation} {request_id}\n".encode())
    finally:
        os.close(notes)


def read_notes(file: Path) -> list[tuple[str, str]]:
    """(conversation, request) of each run, in the order of the runs."""
    lines = file.read_text().splitlines()
    return [(name, request) for name, request in (line.split() for line in lines)]
