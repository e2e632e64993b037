"""What is taken out of a message before it is stored."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from django_streams.messages import sanitise
from django_streams.messages.sanitiser import MAX_PROVIDER_STRING

Part = dict[str, Any]

LONG = "x" * 2_000
OPENAI = {"openai": {"itemId": "i", "reasoningEncryptedContent": None}}
MORE = {"openai": {"itemId": "i", "phase": "p"}, "anthropic": {"s": 1}}


def text(**members: Any) -> Part:
    return {"type": "text", "text": "t"} | members


def reasoning(words: Any = "", **members: Any) -> Part:
    return {"type": "reasoning", "text": words, "state": "done"} | members


def tool(name: str = "run", **members: Any) -> Part:
    part = {"type": f"tool-{name}", "toolCallId": "c", "state": "output-available"}
    return part | members


def cut(words: str) -> str:
    marker = f"… [truncated, original length: {len(words)}]"
    return words[: MAX_PROVIDER_STRING - len(marker)] + marker


def provided(value: Any, name: str = "run") -> Part:
    return tool(name, providerExecuted=True, input={"code": value}, output=value)


CASES: list[tuple[str, Part, Part | None]] = [
    ("ids of one request", text(providerMetadata=OPENAI), text()),
    (
        "what else a provider says",
        text(providerMetadata=MORE),
        text(providerMetadata={"openai": {"phase": "p"}, "anthropic": {"s": 1}}),
    ),
    ("ids of a call", tool(callProviderMetadata=OPENAI), tool()),
    (
        "metadata that is no object",
        text(providerMetadata={"openai": "x"}),
        text(providerMetadata={"openai": "x"}),
    ),
    ("an empty thought", reasoning(), None),
    ("a blank thought", reasoning(" \n"), None),
    ("a thought without a text", reasoning(None), None),
    ("a thought of which only ids are left", reasoning(providerMetadata=OPENAI), None),
    ("a thought", reasoning("hm"), reasoning("hm")),
    (
        "a redacted thought",
        reasoning(providerMetadata={"anthropic": {"redactedData": "r"}}),
        reasoning(providerMetadata={"anthropic": {"redactedData": "r"}}),
    ),
    ("a provider's own tool", provided(LONG), provided(cut(LONG))),
    (
        "strings deep in it",
        provided([{"a": [LONG]}, 1, None]),
        provided([{"a": [cut(LONG)]}, 1, None]),
    ),
    ("a string at the limit", provided(LONG[:500]), provided(LONG[:500])),
    (
        "what is opaque",
        provided({"encrypted_content": LONG, "encryptedX": {"a": LONG}}),
        provided({"encrypted_content": LONG, "encryptedX": {"a": LONG}}),
    ),
    ("a web search", provided(LONG, "web_search"), provided(LONG, "web_search")),
    ("a web page", provided(LONG, "web_fetch"), provided(LONG, "web_fetch")),
    ("a tool of ours", tool(output=LONG), tool(output=LONG)),
    ("a long text", text(text=LONG), text(text=LONG)),
]


@pytest.mark.parametrize(
    ("part", "kept"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_part_is_stored_without_what_is_of_no_use(
    part: Part, kept: Part | None
) -> None:
    message = {"id": "a", "role": "assistant", "parts": [part]}
    before = copy.deepcopy(message)
    once = sanitise(message)
    assert once == message | {"parts": [] if kept is None else [kept]}
    assert sanitise(once) == once
    assert message == before


def test_a_cut_string_is_not_longer_than_the_limit() -> None:
    once = sanitise({"id": "a", "parts": [provided(LONG)]})
    assert len(once["parts"][0]["output"]) == MAX_PROVIDER_STRING


@pytest.mark.parametrize("parts", [None, "x", [1, None, "text"], [{"type": 7}]])
def test_what_is_no_message_stays_as_it_is(parts: Any) -> None:
    message = {"id": "a", "parts": parts}
    assert sanitise(message) == message
