"""The turn as a handler sees it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from django_streams.turns.records import ConversationRef
from django_streams.turns.turn import Turn, to_answer

from .test_handshake import RUNNING

REF = ConversationRef("agent", "room", "u:1")


async def nothing() -> None:
    pass


def message(message_id: str, text: str = "", role: str = "user") -> dict[str, Any]:
    return {
        "id": message_id,
        "role": role,
        "parts": [{"type": "text", "text": text}] if text else [],
    }


def turn(*messages: dict[str, Any]) -> Turn:
    return Turn(RUNNING, REF, list(messages), None, renew=nothing)


async def test_its_text_is_that_of_the_last_user_message() -> None:
    assert turn(message("u1", "a"), message("u2", "b")).text == "b"
    assert turn(message("u1", "a"), message("a1", "x", "assistant")).text == "a"
    assert turn().text == ""
    many = message("u1") | {
        "parts": [
            {"type": "text", "text": "a"},
            {"type": "file", "url": "data:x"},
            {"type": "text", "text": "b"},
            {"type": "text", "text": None},
        ]
    }
    assert turn(many).text == "ab"


async def test_it_sleeps_until_it_is_to_stop() -> None:
    asleep = turn()
    async with asyncio.timeout(5):
        await asleep.sleep(0)
        sleeping = asyncio.create_task(asleep.sleep(60))
        asleep.cancelled.set()
        await sleeping


async def test_a_heartbeat_renews_the_lease() -> None:
    beats: list[bool] = []

    async def renew() -> None:
        beats.append(True)

    await Turn(RUNNING, REF, [], None, renew=renew).heartbeat()
    assert beats == [True]


U1, U2, U3 = (message(f"u{n}", str(n)) for n in (1, 2, 3))
A1, A2 = (message(f"a{n}", "x", "assistant") for n in (1, 2))


@pytest.mark.parametrize(
    ("stored", "origin", "read"),
    [
        ([U1], ["u1"], [U1]),
        ([U1, A1, U2], ["u2"], [U1, A1, U2]),
        ([U1, U2, A1], ["u2"], [U1, A1, U2]),
        ([U1, U2], ["u1"], [U1]),
        ([U1, U2, U3, A1], ["u2"], [U1, A1, U2]),
        ([U1, U2, U3, A1, A2], ["u3"], [U1, U2, A1, A2, U3]),
        ([U1, U2], ["u1", "u2"], [U1, U2]),
        ([U1, A1], [], [U1, A1]),
        ([U1, A1], ["gone"], [U1, A1]),
    ],
)
def test_the_question_comes_last_and_later_ones_are_not_its_business(
    stored: list[Any], origin: list[str], read: list[Any]
) -> None:
    assert to_answer(stored, replace(RUNNING, origin_ids=tuple(origin))) == read


def test_the_keys_of_a_conversation_keep_its_parts_apart() -> None:
    refs = [
        ConversationRef("a", "b", "c"),
        ConversationRef("a", "c", "b"),
        ConversationRef("b", "a", "c"),
        ConversationRef("a", "b", ""),
        ConversationRef("a", "B", "c"),
    ]
    keys = [key for ref in refs for key in (ref.key, ref.wake_key)]
    assert len(set(keys)) == len(keys)
