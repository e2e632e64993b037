"""From what a handler yields to chunks that no client chokes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.messages import Accumulator, Grammar
from django_streams.messages.grammar import DELTA_CHARS

Chunk = dict[str, Any]


def said(*items: str | Chunk, continuation: bool = False) -> list[Chunk]:
    grammar = Grammar("a1", text_id="q1", continuation=continuation)
    chunks: list[Chunk] = []
    for item in items:
        chunks += grammar.text(item) if isinstance(item, str) else grammar.chunk(item)
    return chunks + grammar.finish()


def kinds(chunks: list[Chunk]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def test_strings_become_one_text_under_the_request_id() -> None:
    assert said("hel", "", "lo") == [
        {"type": "start", "messageId": "a1"},
        {"type": "start-step"},
        {"type": "text-start", "id": "q1"},
        {"type": "text-delta", "id": "q1", "delta": "hel"},
        {"type": "text-delta", "id": "q1", "delta": "lo"},
        {"type": "text-end", "id": "q1"},
        {"type": "finish-step"},
        {"type": "finish"},
    ]


def test_a_reply_without_content_has_no_chunk() -> None:
    assert said("", "") == []
    assert not Grammar("a1", text_id="q1").started


def test_a_long_string_goes_out_in_pieces() -> None:
    text = "x" * (2 * DELTA_CHARS + 1)
    deltas = [c["delta"] for c in said(text) if c["type"] == "text-delta"]
    assert "".join(deltas) == text
    assert max(map(len, deltas)) == DELTA_CHARS


def test_a_start_of_the_handler_is_stamped_with_the_id() -> None:
    first = said({"type": "start", "messageMetadata": {"m": 1}}, "x")[0]
    assert first == {"type": "start", "messageMetadata": {"m": 1}, "messageId": "a1"}


def test_an_id_of_the_handler_overrules_ours() -> None:
    grammar = Grammar("a1", text_id="q1")
    assert grammar.chunk({"type": "start", "messageId": "mine"})[0]["messageId"]
    assert grammar.message_id == "mine"


def test_a_second_start_only_brings_metadata() -> None:
    chunks = said(
        "x", {"type": "start", "messageId": "b", "messageMetadata": {"m": 1}}, "y"
    )
    assert kinds(chunks).count("start") == 1
    assert {"type": "message-metadata", "messageMetadata": {"m": 1}} in chunks


def test_a_continuation_carries_no_message_id() -> None:
    assert said("x", continuation=True)[0] == {"type": "start"}
    chunks = said({"type": "start", "messageId": "b"}, "x", continuation=True)
    assert chunks[0] == {"type": "start"}


def test_a_grammatical_reply_passes_unchanged() -> None:
    reply: list[Chunk] = [
        {"type": "start", "messageId": "a1"},
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "hm"},
        {"type": "reasoning-end", "id": "r"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t"},
        {"type": "tool-output-available", "toolCallId": "c", "output": 1},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "x"},
        {"type": "data-x", "data": 1},
        {"type": "text-delta", "id": "t", "delta": "y"},
        {"type": "text-end", "id": "t"},
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "messageMetadata": {"m": 1}},
    ]
    assert said(*reply) == reply


def test_a_part_ends_our_text_and_the_next_string_begins_another() -> None:
    chunks = said("a", {"type": "source-url", "sourceId": "s", "url": "u"}, "b")
    assert [(c["type"], c.get("id")) for c in chunks if "text" in c["type"]] == [
        ("text-start", "q1"),
        ("text-delta", "q1"),
        ("text-end", "q1"),
        ("text-start", "q1-2"),
        ("text-delta", "q1-2"),
        ("text-end", "q1-2"),
    ]


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "data-progress", "data": 1, "transient": True},
        {"type": "message-metadata", "messageMetadata": {}},
    ],
)
def test_our_text_goes_on_across_what_makes_no_part(chunk: Chunk) -> None:
    assert kinds(said("a", chunk, "b")).count("text-start") == 1


def test_a_step_of_the_handler_ends_ours() -> None:
    assert kinds(said("a", {"type": "start-step"}, {"type": "finish-step"})) == [
        "start",
        "start-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "start-step",
        "finish-step",
        "finish",
    ]


def test_a_string_inside_a_step_of_the_handler_opens_no_other() -> None:
    chunks = said({"type": "start-step"}, "a", {"type": "finish-step"})
    assert kinds(chunks).count("start-step") == 1
    assert kinds(chunks).count("finish-step") == 1


def test_only_our_own_text_ends_when_a_reply_is_cut() -> None:
    grammar = Grammar("a1", text_id="q1")
    grammar.text("x")
    assert grammar.cut() == [{"type": "text-end", "id": "q1"}]
    assert grammar.cut() == []
    grammar = Grammar("a1", text_id="q1")
    grammar.chunk({"type": "text-start", "id": "t"})
    assert grammar.cut() == []


@pytest.mark.parametrize("item", [None, 7, [], {}, {"type": 7}, {"id": "x"}])
def test_what_is_no_chunk_is_refused_with_what_was_got(item: Any) -> None:
    with pytest.raises(TypeError, match="strings or chunks"):
        Grammar("a1", text_id="q1").chunk(item)


def test_a_text_needs_a_string_id() -> None:
    with pytest.raises(TypeError, match="string 'id'"):
        Grammar("a1", text_id="q1").chunk({"type": "text-delta", "delta": "x"})


class Client:
    """Throws where the AI SDK's reducer throws."""

    def __init__(self) -> None:
        self.started = 0
        self.open: set[tuple[str, str]] = set()

    def take(self, chunk: Chunk) -> None:
        kind = chunk["type"]
        if kind == "start":
            assert chunk["messageId"]
            self.started += 1
        assert self.started == 1
        what, _, stage = kind.partition("-")
        key = (what, chunk.get("id", ""))
        if what not in ("text", "reasoning"):
            if kind == "finish-step":
                self.open.clear()
        elif stage == "start":
            self.open.add(key)
        else:
            assert key in self.open, f"{kind} of {key[1]}, which was not begun"
            if stage == "end":
                self.open.remove(key)


ids = st.sampled_from(["t", "u"])
handler_chunks = st.one_of(
    st.builds(
        lambda what, stage, text_id: {
            "type": f"{what}-{stage}",
            "id": text_id,
            "delta": "d",
        },
        st.sampled_from(["text", "reasoning"]),
        st.sampled_from(["start", "delta", "end"]),
        ids,
    ),
    st.sampled_from(
        [
            {"type": "start"},
            {"type": "start", "messageId": "b"},
            {"type": "start-step"},
            {"type": "finish-step"},
            {"type": "finish"},
            {"type": "data-x", "data": 1},
            {"type": "abort"},
        ]
    ),
)


@given(st.lists(st.text(max_size=3) | handler_chunks, max_size=25))
def test_no_client_throws_whatever_a_handler_yields(items: list[str | Chunk]) -> None:
    client = Client()
    chunks = said(*items)
    for chunk in chunks:
        client.take(chunk)
    assert not client.open
    assert not chunks or chunks[0]["type"] == "start"


@given(st.lists(st.text(max_size=5) | handler_chunks, max_size=25))
def test_no_text_is_lost_on_the_way_into_the_message(items: list[str | Chunk]) -> None:
    message = Accumulator("a1")
    for chunk in said(*items):
        message.apply(chunk)
    kept = [part["text"] for part in message.message["parts"] if part["type"] == "text"]
    given = [
        item if isinstance(item, str) else "d"
        for item in items
        if isinstance(item, str) or item["type"] == "text-delta"
    ]
    assert sorted("".join(kept)) == sorted("".join(given))


def test_a_text_that_a_new_beginning_of_its_step_took_away_is_begun_again() -> None:
    step = [{"type": "start-step"}, {"type": "text-start", "id": "t"}]
    delta = {"type": "text-delta", "id": "t", "delta": "x"}
    chunks = said(*step, {"type": "reset-step"}, delta)
    assert kinds(chunks)[3:] == [
        "reset-step",
        "text-start",
        "text-delta",
        "text-end",
        "finish",
    ]


def test_a_step_goes_out_under_the_name_that_clients_know() -> None:
    assert kinds(said({"type": "step-start"}))[1] == "start-step"


@pytest.mark.parametrize("what", ["text", "reasoning"])
def test_a_delta_without_a_text_is_refused(what: str) -> None:
    with pytest.raises(TypeError, match="needs a string 'delta'; got 7"):
        said({"type": f"{what}-delta", "id": "t", "delta": 7})
