"""From chunks to the message that is kept."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams.messages import Accumulator


def built(*chunks: object, base: dict[str, Any] | None = None) -> dict[str, Any]:
    accumulator = Accumulator("a1", base=base)
    for chunk in chunks:
        accumulator.apply(chunk)
    return accumulator.message


def parts(*chunks: object) -> list[dict[str, Any]]:
    message = built(*chunks)
    found: list[dict[str, Any]] = message["parts"]
    return found


def text(kind: str, text_id: str = "t", **members: Any) -> dict[str, Any]:
    return {"type": kind, "id": text_id} | members


def part(what: str, text_id: str = "t", **members: Any) -> dict[str, Any]:
    """A text or reasoning part; only reasoning keeps its id."""
    named = {"id": text_id} if what == "reasoning" else {}
    return {"type": what, "text": "", "state": "streaming"} | named | members


def tool(kind: str, call_id: str = "c", **members: Any) -> dict[str, Any]:
    return {"type": kind, "toolCallId": call_id} | members


START = tool("tool-input-start", toolName="loc")
INPUT = tool("tool-input-available", toolName="loc", input={"a": 1})
CALL = {"type": "tool-loc", "toolName": "loc", "toolCallId": "c"}


def test_a_plain_reply_is_one_text_part() -> None:
    assert built(
        {"type": "start", "messageId": "a9", "messageMetadata": {"model": "m"}},
        {"type": "start-step"},
        text("text-start"),
        text("text-delta", delta="he"),
        text("text-delta", delta="llo"),
        text("text-end"),
        {"type": "finish-step"},
        {"type": "finish", "finishReason": "stop", "messageMetadata": {"tokens": 2}},
    ) == {
        "id": "a9",
        "role": "assistant",
        "metadata": {"model": "m", "tokens": 2},
        "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "hello", "state": "done"},
        ],
    }


@pytest.mark.parametrize("what", ["text", "reasoning"])
def test_interleaved_texts_are_kept_apart_by_their_ids(what: str) -> None:
    assert parts(
        text(f"{what}-start", "1"),
        text(f"{what}-start", "2"),
        text(f"{what}-delta", "1", delta="a"),
        text(f"{what}-delta", "2", delta="b"),
        text(f"{what}-delta", "1", delta="c"),
        text(f"{what}-end", "1"),
    ) == [
        part(what, "1", text="ac", state="done"),
        part(what, "2", text="b"),
    ]


def test_a_text_goes_on_after_the_step_in_which_it_began() -> None:
    assert parts(
        text("text-start", "1"),
        text("text-start", "2"),
        {"type": "finish-step"},
        text("text-delta", "1", delta="a"),
    ) == [part("text", "1", text="a"), part("text", "2")]


def test_numbers_name_texts_as_strings_do() -> None:
    assert parts(
        {"type": "text-start", "id": 1},
        {"type": "text-start", "id": 2},
        {"type": "text-delta", "id": "1", "delta": "a"},
    ) == [part("text", text="a"), part("text")]


@pytest.mark.parametrize("what", ["text", "reasoning"])
def test_a_delta_of_an_unknown_text_goes_to_the_last_one(what: str) -> None:
    assert parts(
        text(f"{what}-start", "1"),
        text(f"{what}-delta", "1", delta="a"),
        text(f"{what}-end", "1"),
        text(f"{what}-delta", "other", delta="b"),
    ) == [part(what, "1", text="ab", state="done")]


@pytest.mark.parametrize("what", ["text", "reasoning"])
def test_a_delta_without_any_text_begins_one(what: str) -> None:
    assert parts(text(f"{what}-delta", delta="a")) == [part(what, text="a")]
    assert parts(text(f"{what}-end")) == []


def test_provider_metadata_of_a_text_is_merged() -> None:
    assert parts(
        text("reasoning-start", providerMetadata={"a": {"x": 1}}),
        text("reasoning-delta", delta="hm", providerMetadata={"b": 2}),
        text("reasoning-end", providerMetadata={"a": {"signature": "s"}}),
    ) == [
        {
            "type": "reasoning",
            "id": "t",
            "text": "hm",
            "state": "done",
            "providerMetadata": {"a": {"signature": "s"}, "b": 2},
        }
    ]


def test_a_tool_call_goes_through_its_states() -> None:
    chunks: list[dict[str, Any]] = [START]
    assert parts(*chunks) == [CALL | {"state": "input-streaming"}]
    chunks.append(tool("tool-input-delta", inputTextDelta='{"a":'))
    assert parts(*chunks) == [CALL | {"state": "input-streaming"}]
    chunks.append(INPUT)
    assert parts(*chunks) == [CALL | {"state": "input-available", "input": {"a": 1}}]
    chunks.append(tool("tool-output-available", output={"x": 1}, preliminary=True))
    assert parts(*chunks)[0]["preliminary"] is True
    chunks.append(tool("tool-output-available", output={"city": "X"}))
    assert parts(*chunks) == [
        CALL | {"state": "output-available", "input": {"a": 1}, "output": {"city": "X"}}
    ]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (' {"a": 1}', {"a": 1}),
        ("{broken", {}),
        ("[1]", {}),
        ("", {}),
        (None, {}),
        ([1], {}),
        (7, {}),
    ],
)
def test_a_tool_input_is_always_an_object(given: object, kept: object) -> None:
    call = parts(tool("tool-input-available", toolName="loc", input=given))[0]
    assert call["input"] == kept


def test_an_input_error_ends_a_call_or_makes_one() -> None:
    failed = tool("tool-input-error", toolName="loc", errorText="bad", input="{")
    state = {"state": "output-error", "errorText": "bad", "input": {}}
    assert parts(START, failed) == [CALL | state]
    assert parts(failed) == [CALL | state]
    settled = tool("tool-output-available", output=1)
    assert parts(INPUT, settled, failed)[0]["state"] == "output-available"


@pytest.mark.parametrize(
    "settling",
    [
        tool("tool-output-available", output=1),
        tool("tool-output-error", errorText="no"),
        tool("tool-output-denied"),
    ],
)
def test_an_approval_request_does_not_set_a_settled_call_back(
    settling: dict[str, Any],
) -> None:
    before = parts(INPUT, settling)
    again = [
        tool("tool-approval-request", approvalId="ap"),
        tool("tool-output-denied"),
        START,
        INPUT,
    ]
    assert parts(INPUT, settling, *again) == before
    accumulator = Accumulator("a1")
    for chunk in (INPUT, settling):
        accumulator.apply(chunk)
    assert not any(accumulator.forwarded(chunk) for chunk in again)


@pytest.mark.parametrize("approved", [True, False])
def test_a_denial_does_not_set_an_approved_call_back(approved: bool) -> None:
    asked = tool("tool-approval-request", approvalId="ap")
    answer = {
        "type": "tool-approval-response",
        "approvalId": "ap",
        "approved": approved,
    }
    denied = tool("tool-output-denied")
    state = parts(INPUT, asked, answer, denied)[0]["state"]
    assert state == ("approval-responded" if approved else "output-denied")


def test_an_input_after_its_approval_was_asked_for_is_followed_by_the_request() -> None:
    asked = tool("tool-approval-request", approvalId="ap", reason="costs")
    accumulator = Accumulator("a1")
    for chunk in (START, tool("tool-input-delta", inputTextDelta='{"a'), asked):
        accumulator.apply(chunk)
    assert accumulator.message["parts"][0]["input"] == {}
    assert accumulator.forwarded(INPUT) == [INPUT, asked]
    for chunk in (INPUT, asked):
        accumulator.apply(chunk)
    call = accumulator.message["parts"][0]
    assert (call["state"], call["input"]) == ("approval-requested", {"a": 1})
    assert accumulator.forwarded(INPUT | {"input": {"other": 1}}) == []


def test_an_input_that_was_read_before_the_approval_is_never_swapped_out() -> None:
    asked = tool("tool-approval-request", approvalId="ap")
    other = INPUT | {"input": {"other": 1}}
    assert parts(INPUT, asked, other)[0]["input"] == {"a": 1}


def test_a_step_that_begins_anew_forgets_its_calls_and_texts() -> None:
    reset = {"type": "reset-step"}
    step = {"type": "start-step"}
    raw = tool("tool-input-delta", inputTextDelta='{"old": 1}')
    output = tool("tool-output-available", output=1)
    accumulator = Accumulator("a1")
    for chunk in (step, START, raw, text("text-delta", delta="x"), reset):
        accumulator.apply(chunk)
    assert accumulator.message["parts"] == [{"type": "step-start"}]
    assert accumulator.forwarded(START) == [START]
    for chunk in (START, output, text("text-delta", delta="y")):
        accumulator.apply(chunk)
    assert accumulator.message["parts"][1:] == [
        CALL | {"state": "output-available", "output": 1},
        part("text", text="y"),
    ]


def test_a_result_from_elsewhere_is_taken_into_the_reply() -> None:
    accumulator = Accumulator("a1")
    for chunk in (INPUT, text("text-start")):
        accumulator.apply(chunk)
    assert accumulator.amend(
        lambda part: part | {"state": "output-error"} if "toolCallId" in part else None
    )
    assert not accumulator.amend(lambda part: None)
    accumulator.apply(text("text-delta", delta="on"))
    assert [p.get("state") for p in accumulator.message["parts"]] == [
        "output-error",
        "streaming",
    ]


def test_the_first_chunks_of_a_call_are_no_repeats() -> None:
    accumulator = Accumulator("a1")
    for chunk in (START, tool("tool-input-delta", inputTextDelta="{"), INPUT):
        assert accumulator.forwarded(chunk) == [chunk]
        accumulator.apply(chunk)


@pytest.mark.parametrize(
    "chunk",
    [
        tool("tool-input-delta", inputTextDelta="{"),
        tool("tool-approval-request", approvalId="ap"),
        tool("tool-output-available", output=1),
        tool("tool-output-error", errorText="no"),
        tool("tool-output-denied"),
        {"type": "tool-approval-response", "approvalId": "ap", "approved": True},
        tool("tool-input-start"),
        tool("tool-input-available", call_id="", toolName="loc", input={}),
        {"type": "tool-input-start", "toolName": "loc"},
    ],
)
def test_what_is_said_of_no_call_is_neither_shown_nor_kept(chunk: Any) -> None:
    accumulator = Accumulator("a1")
    assert accumulator.forwarded(chunk) == []
    accumulator.apply(chunk)
    assert accumulator.empty


def test_an_input_is_shown_as_of_the_kind_of_tool_that_its_call_is() -> None:
    accumulator = Accumulator("a1")
    accumulator.apply(START)
    nameless = {key: value for key, value in INPUT.items() if key != "toolName"}
    for odd in (INPUT | {"dynamic": True}, nameless):
        assert accumulator.forwarded(odd) == [INPUT | {"dynamic": False}]


def test_an_output_of_an_unknown_call_changes_nothing() -> None:
    assert parts(tool("tool-output-available", output=1)) == []


def test_data_parts_are_updated_in_place_and_transient_ones_not_kept() -> None:
    assert parts(
        {"type": "data-weather", "id": "w", "data": 1},
        {"type": "data-weather", "data": 2},
        {"type": "data-other", "id": "w", "data": 3},
        {"type": "data-weather", "id": "w", "data": 4},
        {"type": "data-weather", "id": "x", "data": 5, "transient": True},
    ) == [
        {"type": "data-weather", "id": "w", "data": 4},
        {"type": "data-weather", "data": 2},
        {"type": "data-other", "id": "w", "data": 3},
    ]


def test_metadata_is_merged_key_by_key() -> None:
    message = built(
        {"type": "start", "messageMetadata": {"usage": {"in": 1}, "model": "m"}},
        {"type": "message-metadata", "messageMetadata": {"usage": {"out": 2}}},
        {"type": "message-metadata", "messageMetadata": None},
    )
    assert message["metadata"] == {"usage": {"in": 1, "out": 2}, "model": "m"}


BASE = {
    "id": "a0",
    "role": "assistant",
    "metadata": {"a": 1},
    "parts": [{"type": "text", "text": "one", "state": "streaming"}],
}


def test_a_continuation_adds_to_a_copy_of_its_message() -> None:
    before = copy.deepcopy(BASE)
    message = built(
        {"type": "start", "messageId": "other", "messageMetadata": {"b": 2}},
        text("text-delta", delta=" two"),
        text("text-start", "n"),
        text("text-delta", "n", delta="three"),
        base=BASE,
    )
    assert message["id"] == "a1"
    assert message["metadata"] == {"a": 1, "b": 2}
    assert [part["text"] for part in message["parts"]] == ["one two", "three"]
    assert before == BASE


def test_step_marks_alone_are_nothing_to_keep() -> None:
    accumulator = Accumulator("a1")
    accumulator.apply({"type": "start", "messageId": "a1"})
    accumulator.apply({"type": "start-step"})
    assert accumulator.empty
    accumulator.apply(text("text-delta", delta="x"))
    assert not accumulator.empty


def test_the_message_can_be_asked_for_in_between() -> None:
    accumulator = Accumulator("a1")
    for at in range(5):
        accumulator.apply(text("text-delta", delta=str(at)))
        assert accumulator.message["parts"][0]["text"] == "01234"[: at + 1]


kinds = st.sampled_from(
    [
        "start",
        "start-step",
        "finish-step",
        "text-start",
        "text-delta",
        "text-end",
        "reasoning-delta",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-input-error",
        "tool-approval-request",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
        "tool-approval-response",
        "reset-step",
        "data-x",
        "file",
        "message-metadata",
        "finish",
        "unknown",
    ]
)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
names = st.sampled_from(
    [
        "id",
        "delta",
        "toolCallId",
        "toolName",
        "input",
        "output",
        "errorText",
        "messageId",
        "messageMetadata",
        "providerMetadata",
        "transient",
        "data",
        "inputTextDelta",
        "approvalId",
        "approved",
        "citations",
    ]
)
chunks_of_any_kind = st.builds(
    lambda kind, members: members | {"type": kind},
    kinds,
    st.dictionaries(names, values),
)


@given(st.lists(values | chunks_of_any_kind, max_size=20))
def test_it_takes_any_json_value_and_never_raises(chunks: list[object]) -> None:
    accumulator = Accumulator("a1")
    for chunk in chunks:
        if isinstance(chunk, dict):
            accumulator.forwarded(chunk)
        accumulator.apply(chunk)
    message = accumulator.message
    assert message["role"] == "assistant"
    assert all(isinstance(part["type"], str) for part in message["parts"])
