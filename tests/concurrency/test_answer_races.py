"""Answers to tool calls that come to several processes at the same instant."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django.fixtures import Settings

from django_streams.models import Conversation
from django_streams.turns import (
    answering,
    conversations,
    door,
    ends,
    queue,
    transcript,
)
from django_streams.turns.awaited import Answer
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef, Ending, EventKind, TurnStatus
from tests.conftest import RealDb
from tests.integration.chatting import user_message

from . import racing
from .brood import Brood, Ready
from .racing import RIVALS, Racer, room
from .test_turn_races import ALIASES

ROUNDS = 5

CALLS = ("t1", "t2")


@pytest.fixture
def brood() -> Iterator[Brood]:
    with Brood(env={"PGOPTIONS": "-c synchronous_commit=off"}) as brood:
        yield brood


@pytest.fixture(params=ALIASES)
def alias(request: pytest.FixtureRequest, real_db: RealDb, settings: Settings) -> str:
    """Use it here as the children do."""
    real_db("default")
    name = real_db(request.param)
    settings.DJANGO_STREAMS = {"DATABASE": name, "CHANNEL_LAYER": None}
    return name


def reply(*calls: str) -> dict[str, Any]:
    parts = [
        {"type": "tool-x", "toolCallId": one, "state": "input-available", "input": {}}
        for one in calls
    ]
    return {"id": "a", "role": "assistant", "parts": parts}


def answer_at_once(
    ready: Ready, alias: str, folder: str, number: int, name: str, calls: list[str]
) -> list[Any]:
    """Answer the calls in each room with the other processes; with *name* "ends"
    the first process ends the turn instead. What each answer asked for."""
    racing.use(alias)
    conversations.find(room("nothing", number))  # connects
    ready()
    asked: list[Any] = []
    for at in range(ROUNDS):
        ref = room(name, at)
        # Each begins with another one.
        mine = calls[number % len(calls) :] + calls[: number % len(calls)]
        racing.meet(Path(folder) / ref.name, number)
        if name == "ends" and number == 0:
            turn = queue.by_request(conversations.find(ref) or 0, "q")
            assert turn is not None
            ending = Ending(status=TurnStatus.COMPLETED, message=reply(*calls))
            assert ends.finish_alone(turn, ref.wake_key, ending)
            asked.append([])
            continue
        given = [Answer(call_id=call, output=[number, call]) for call in mine]
        asked.append([_answer(ref, one, str(number)) for one in given])
    return asked


def _answer(ref: ConversationRef, given: Answer, owner: str) -> str | None:
    """As a connection does."""
    while True:
        proposal = asyncio.run(answering.propose(Racer(), ref, given.change))
        with contextlib.suppress(answering.Outdated):
            return answering.answer(ref, given, proposal, continues=True, owner=owner)


def raced(brood: Brood, alias: str, folder: Path, name: str) -> list[list[Any]]:
    """Of each room what the answers of each process asked for."""
    arguments = {"alias": alias, "folder": str(folder), "name": name}
    arguments |= {"calls": list(CALLS)}  # type: ignore[dict-item]
    jobs = [
        (answer_at_once, arguments | {"number": number}) for number in range(RIVALS)
    ]
    return list(zip(*brood.run(*jobs), strict=True))  # type: ignore[arg-type]


def one_continuation(name: str, at: int, asked: list[Any]) -> list[Any]:
    """The outputs in a room: of each call one, and one continuation for all."""
    ref = room(name, at)
    rows = queue.turns().filter(conversation__key=ref.key, continuation=True)
    (turn,) = rows
    assert turn.status == "queued"
    ids = {one for process in asked for one in process if one is not None}
    assert ids == {turn.request_id}
    held: Any = Conversation.objects.using(door.alias()).get(key=ref.key)
    assert held.awaited is None
    (message,) = [m for m in transcript.load(held.pk) if m["role"] == "assistant"]
    outputs = [part["output"] for part in message["parts"]]
    assert [call for _, call in outputs] == list(CALLS)
    return outputs


def test_each_call_has_its_first_answer_and_the_reply_goes_on_once(
    brood: Brood, tmp_path: Path, alias: str
) -> None:
    for at in range(ROUNDS):
        queue.sync_messages(
            room("answers", at), [user_message("x", "u"), reply(*CALLS)]
        )
    for at, asked in enumerate(raced(brood, alias, tmp_path, "answers")):
        outputs = one_continuation("answers", at, asked)
        winners = [number for number, _ in outputs]
        # Who was late was told nothing, and asked for nothing.
        for number, answers in enumerate(asked):
            given = [one for one in answers if one is not None]
            assert len(given) == winners.count(number)
        events = conversations.events_after(room("answers", at).key, 0, 100)
        told = [event for event in events if event.kind is EventKind.UPDATED]
        assert len(told) == len(CALLS)


def test_answers_in_the_instant_of_the_reply_s_end_are_not_lost(
    brood: Brood, tmp_path: Path, alias: str
) -> None:
    for at in range(ROUNDS):
        ref = room("ends", at)
        message = user_message("x", "u")
        queue.submit(
            ref, Submission(request_id="q", messages=[message], origin_ids=["u"])
        )
        pk = conversations.find(ref)
        assert pk is not None
        turn = queue.claim(pk, message_id="a", lease=60)
        assert turn is not None
        queue.begin(turn, ref.wake_key, stream=f"s {at}")
    for at, asked in enumerate(raced(brood, alias, tmp_path, "ends")):
        one_continuation("ends", at, asked)
