"""What a model is told of a stored reply."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.messages.steps import DENIED_TEXT, result_of, steps
from django_streams.providers import openai

Part = dict[str, Any]
STEP: Part = {"type": "step-start"}


def text(words: str) -> Part:
    return {"type": "text", "text": words}


def call(state: str, call_id: str = "c", **members: Any) -> Part:
    part = {
        "type": "tool-loc",
        "toolCallId": call_id,
        "state": state,
        "input": {"a": 1},
    }
    return part | members


def told(call_id: str = "c", name: str = "loc", arguments: str = '{"a": 1}') -> Part:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


NO: Part = {"approval": {"id": "p", "approved": False}}
WHY: Part = {"approval": {"id": "p", "approved": False, "reason": "too dear"}}


@pytest.mark.parametrize(
    ("part", "result"),
    [
        (call("output-available", output="sunny"), "sunny"),
        (call("output-available", output={"ü": [1, None]}), '{"ü": [1, null]}'),
        (call("output-error", errorText="no such city"), "no such city"),
        (call("output-denied", **NO), DENIED_TEXT),
        (call("output-denied"), DENIED_TEXT),
        (call("output-denied", **WHY), "too dear"),
        (call("approval-responded", **NO), DENIED_TEXT),
        (call("approval-responded", **WHY), "too dear"),
    ],
)
def test_a_call_that_is_over_is_told_with_its_result(part: Part, result: str) -> None:
    message = {"role": "assistant", "parts": [part]}
    assert openai.to_messages([message]) == [
        {"role": "assistant", "content": None, "tool_calls": [told()]},
        {"role": "tool", "tool_call_id": "c", "content": result},
    ]


@pytest.mark.parametrize(
    "part",
    [
        call("input-streaming"),
        call("input-available"),
        call("approval-requested"),
        call("approval-responded", approval={"id": "p", "approved": True}),
        {"type": "tool-loc", "state": "output-available", "output": 1},
    ],
)
def test_a_call_without_a_result_is_not_told(part: Part) -> None:
    assert result_of(part) is None
    message = {"role": "assistant", "parts": [text("hm"), part]}
    assert openai.to_messages([message]) == [{"role": "assistant", "content": "hm"}]


def test_a_reply_is_told_step_by_step() -> None:
    message = {
        "role": "assistant",
        "parts": [
            STEP,
            text("Let me "),
            STEP,
            {"type": "reasoning", "text": "which?"},
            text("look."),
            call("output-available", "1", output=1),
            call("output-error", "2", errorText="no", input="broken"),
            call("output-available", "3", output=1, providerExecuted=True),
            STEP,
            call("output-available", "4", output=2, type="dynamic-tool", toolName="x"),
            STEP,
            text("Sunny."),
        ],
    }
    assert openai.to_messages([message]) == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [told("1"), told("2", arguments="{}")],
        },
        {"role": "tool", "tool_call_id": "1", "content": "1"},
        {"role": "tool", "tool_call_id": "2", "content": "no"},
        {"role": "assistant", "content": None, "tool_calls": [told("4", "x")]},
        {"role": "tool", "tool_call_id": "4", "content": "2"},
        {"role": "assistant", "content": "Sunny."},
    ]


def test_steps_without_anything_are_left_out() -> None:
    message = {"parts": [STEP, STEP, text("a"), STEP, call("input-available"), STEP]}
    assert [[part["text"] for part in step.said] for step in steps(message)] == [["a"]]
    assert list(steps({"parts": None})) == []


def test_what_is_said_behind_a_result_is_told_behind_it() -> None:
    parts = [
        text("a"),
        call("output-available", output="b"),
        {"type": "data-x", "data": 1},
        text("c"),
    ]
    assert openai.to_messages([{"role": "assistant", "parts": parts}]) == [
        {"role": "assistant", "content": "a", "tool_calls": [told()]},
        {"role": "tool", "tool_call_id": "c", "content": "b"},
        {"role": "assistant", "content": "c"},
    ]


def test_what_is_said_behind_a_provider_s_own_tool_is_of_the_same_step() -> None:
    searched = call("output-available", output="b", providerExecuted=True)
    parts = [text("a"), searched, text("c")]
    (step,) = steps({"role": "assistant", "parts": parts})
    assert step.said == [parts[0], parts[2]]
    assert [one.part for one in step.results] == [searched]
    assert step.content[1] == step.results[0]
