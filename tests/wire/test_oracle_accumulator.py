"""The accumulator against the AI SDK's own reducer (npm ``ai``)."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from django_streams.messages import Accumulator, Grammar
from tests.wire.oracle import Oracle, oracle
from tests.wire.replies import Chunk, replies, values

pytestmark = pytest.mark.needs("node-packages")

EXAMPLES = int(os.environ.get("DS_TEST_EXAMPLES", "100"))
"""A run by hand may ask for more."""

unhurried = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def sdk() -> Iterator[Oracle]:
    with oracle() as running:
        yield running


def kept(message: dict[str, Any]) -> dict[str, Any]:
    """What the accumulator keeps of the SDK's message: see docs/reference."""
    message = copy.deepcopy(message)
    for part in message["parts"]:
        kind = part["type"]
        if kind.startswith("tool-"):
            part["toolName"] = kind.removeprefix("tool-")
        if kind.startswith("tool-") or kind == "dynamic-tool":
            part.pop("rawInput", None)
            if part["state"] == "input-streaming":
                part.pop("input", None)
                part.pop("inputEncoding", None)
        if kind.startswith("data-"):
            part.pop("transient", None)
    return message


def built(chunks: list[Any], base: dict[str, Any] | None = None) -> dict[str, Any]:
    accumulator = Accumulator(base["id"] if base else "m0", base=base)
    for chunk in chunks:
        accumulator.apply(chunk)
    return copy.deepcopy(accumulator.message)


def shown(chunks: list[Chunk]) -> list[Chunk]:
    """What goes out of the chunks, in the way a turn sends them."""
    accumulator = Accumulator("m0")
    sent = []
    for chunk in chunks:
        for forwarded in accumulator.forwarded(chunk):
            sent.append(forwarded)
            accumulator.apply(forwarded)
    return sent


@unhurried
@given(chunks=replies())
def test_valid_replies_make_the_message_of_the_sdk(
    sdk: Oracle, chunks: list[Chunk]
) -> None:
    theirs = sdk.ask("message", id="m0", chunks=chunks)
    assert theirs["failed"] is None, theirs
    assert shown(chunks) == chunks
    assert built(chunks) == kept(theirs["message"])


@unhurried
@given(first=replies(), second=replies(prefix="n"))
def test_a_continuation_makes_the_message_of_the_sdk(
    sdk: Oracle, first: list[Chunk], second: list[Chunk]
) -> None:
    base = built(first)
    theirs = sdk.ask("message", id=base["id"], base=base, chunks=second)
    assert theirs["failed"] is None, theirs
    assert built(second, base) == kept(theirs["message"])


@unhurried
@given(chunks=replies(resets=False), data=st.data())
def test_what_a_provider_says_again_changes_neither(
    sdk: Oracle, chunks: list[Chunk], data: st.DataObject
) -> None:
    """Repeats of a tool call are not shown; what is shown, the SDK takes."""
    said = list(chunks)
    calls = [i for i, chunk in enumerate(said) if "toolCallId" in chunk]
    for at in sorted(data.draw(st.sets(st.sampled_from(calls or [0]))), reverse=True):
        chunk = said[at]
        if chunk["type"] == "tool-input-start" and data.draw(st.booleans()):
            chunk = chunk | {"type": "tool-input-available", "input": {"late": 1}}
        if chunk["type"] in REPEATED:
            said.insert(data.draw(st.integers(at + 1, end_of_step(said, at))), chunk)
    sent = shown(said)
    theirs = sdk.ask("message", id="m0", chunks=sent)
    assert theirs["failed"] is None, theirs
    assert built(said) == built(sent) == kept(theirs["message"])


@unhurried
@given(chunks=replies(), words=st.lists(st.text(max_size=3)), data=st.data())
def test_whatever_a_handler_yields_no_client_gives_up(
    sdk: Oracle, chunks: list[Chunk], words: list[str], data: st.DataObject
) -> None:
    """What comes out of a handler's items is valid, and the message the client's."""
    items: list[Any] = list(chunks)
    for _ in range(data.draw(st.integers(0, 4)) if items else 0):
        at = data.draw(st.integers(0, len(items) - 1))
        match data.draw(st.sampled_from(("drop", "again", "move", "rename"))):
            case "drop" if len(items) > 1:
                del items[at]
            case "again":
                items.insert(data.draw(st.integers(0, len(items))), items[at])
            case "move":
                items.insert(data.draw(st.integers(0, len(items))), items.pop(at))
            case "rename":
                items[at] = {
                    key: "other" if key in ("id", "toolCallId", "approvalId") else value
                    for key, value in items[at].items()
                }
    for word in words:
        items.insert(data.draw(st.integers(0, len(items))), word)
    sent = said_in_grammar(items)
    theirs = sdk.ask("message", id="m0", chunks=sent)
    assert theirs["failed"] is None, theirs
    if not crosses_steps(sent):
        assert built(sent) == kept(theirs["message"])


def said_in_grammar(items: list[Any]) -> list[Chunk]:
    grammar, accumulator = Grammar("m0", text_id="q"), Accumulator("m0")
    sent = []

    def say(chunks: list[Chunk]) -> None:
        for chunk in chunks:
            for shown in accumulator.forwarded(chunk):
                sent.append(shown)
                accumulator.apply(shown)

    for item in items:
        say(grammar.text(item) if isinstance(item, str) else grammar.chunk(item))
    say(grammar.finish())
    return sent


def crosses_steps(chunks: list[Chunk]) -> bool:
    """Whether an input goes on in a later step than it began in: a client then
    takes it for another call."""
    step = 0
    begun: dict[str, int] = {}
    for chunk in chunks:
        step += chunk["type"] == "start-step"
        if (
            chunk["type"].startswith("tool-input-")
            and begun.setdefault(chunk["toolCallId"], step) != step
        ):
            return True
    return False


def end_of_step(chunks: list[Chunk], at: int) -> int:
    """Where the step ends that a chunk is in: no input comes later than that."""
    later = range(at + 1, len(chunks))
    return next((i for i in later if chunks[i]["type"] == "start-step"), len(chunks))


REPEATED = (
    "tool-input-start",
    "tool-input-available",
    "tool-input-error",
    "tool-approval-request",
    "tool-output-denied",
)


@unhurried
@given(chunks=replies(resets=False), data=st.data())
def test_broken_replies_make_what_the_sdk_has_made_when_it_throws_and_more(
    sdk: Oracle, chunks: list[Chunk], data: st.DataObject
) -> None:
    # A start that comes late and names another message would empty this one.
    broken: list[Any] = [
        {key: value for key, value in chunk.items() if key != "messageId"}
        for chunk in chunks
    ]
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken) - 1)) if broken else 0
        match data.draw(st.sampled_from(("drop", "move", "rename", "junk"))):
            case "drop" if broken:
                del broken[at]
            case "move" if broken:
                chunk = broken.pop(at)
                broken.insert(data.draw(st.integers(0, len(broken))), chunk)
            case "rename" if broken and isinstance(broken[at], dict):
                broken[at] = {
                    key: "who?" if key in ("id", "toolCallId", "approvalId") else value
                    for key, value in broken[at].items()
                }
            case _:
                broken.insert(at, data.draw(values))
    sent = [chunk for chunk in broken if not isinstance(chunk, dict) or "type" in chunk]
    theirs = sdk.ask("message", id="m0", chunks=sent)
    whole = built(sent)
    if theirs["failed"] is None:
        return
    before = built(sent[: theirs["failed"]])
    if repeats(sent[: theirs["failed"]]):
        return
    assert before == kept(theirs["message"])
    assert len(whole["parts"]) >= len(before["parts"])
    for part, earlier in zip(whole["parts"], before["parts"], strict=False):
        assert part["type"].partition("-")[0] == earlier["type"].partition("-")[0]
        assert part.get("text", "").startswith(earlier.get("text", ""))


def repeats(chunks: list[Any]) -> bool:
    """Whether the SDK would set back a call that a turn would not have shown."""
    accumulator = Accumulator("m0")
    for chunk in chunks:
        if isinstance(chunk, dict) and accumulator.forwarded(chunk) != [chunk]:
            return True
        accumulator.apply(chunk)
    return False
