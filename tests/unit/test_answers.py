"""Results and approvals from elsewhere, and calls that nobody will answer."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from django_streams.messages import answers, repaired
from django_streams.messages.answers import Change
from django_streams.messages.repair import INTERRUPTED_TEXT, NOT_RUN_TEXT

Message = dict[str, Any]
Part = dict[str, Any]


def call(state: str, call_id: str = "c", **members: Any) -> Part:
    part = {"type": "tool-loc", "toolCallId": call_id, "state": state, "input": {}}
    return part | members


def message(*parts: Part, message_id: str = "a", role: str = "assistant") -> Message:
    return {"id": message_id, "role": role, "parts": list(parts)}


WAITING = ("input-available", "approval-requested", "approval-responded")
SETTLED = ("output-available", "output-error", "output-denied")
OUTPUT = {"state": "output-available", "output": [1], "preliminary": False}


def answered(part: Part, change: Change) -> Part | None:
    before = copy.deepcopy(part)
    result = answers.changed([message(part)], change)
    assert part == before
    return result["parts"][0] if result else None


@pytest.mark.parametrize("state", WAITING)
def test_a_result_settles_a_call_that_waits(state: str) -> None:
    assert answered(call(state), answers.tool_result("c", [1])) == (call("") | OUTPUT)


@pytest.mark.parametrize("state", WAITING)
@pytest.mark.parametrize(
    ("given", "text"),
    [("no", "no"), ("", ""), (None, "Tool execution denied by user")],
)
def test_a_failed_result_tells_the_reason_or_that_it_was_refused(
    state: str, given: str | None, text: str
) -> None:
    change = answers.tool_result("c", failed=True, error_text=given)
    expected = call("output-error", errorText=text)
    assert answered(call(state), change) == expected


@pytest.mark.parametrize("state", [*SETTLED, "input-streaming"])
@pytest.mark.parametrize(
    "change",
    [
        answers.tool_result("c", 2),
        answers.tool_result("c", failed=True),
        answers.tool_approval("c", True),
        answers.tool_approval("c", False),
    ],
)
def test_the_first_answer_counts(state: str, change: Change) -> None:
    assert answered(call(state, output=1), change) is None


@pytest.mark.parametrize(
    "change", [answers.tool_result("x"), answers.tool_approval("x", True)]
)
def test_an_answer_to_an_unknown_call_changes_nothing(change: Change) -> None:
    assert answered(call("input-available"), change) is None


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, {"id": "c"}),
        ({"approval": {"id": "p", "descriptor": 1}}, {"id": "p", "descriptor": 1}),
        ({"approval": "junk"}, {"id": "c"}),
    ],
)
@pytest.mark.parametrize("state", ["input-available", "approval-requested"])
def test_an_approval_is_kept_with_its_id(
    state: str, asked: Part, told: Part, approved: bool
) -> None:
    after = "approval-responded" if approved else "output-denied"
    part = answered(call(state, **asked), answers.tool_approval("c", approved))
    assert part == call(after, approval=told | {"approved": approved})


def test_a_call_that_was_approved_is_not_asked_for_again() -> None:
    change = answers.tool_approval("c", False)
    assert answered(call("approval-responded"), change) is None


def test_a_dynamic_tool_is_answered_too() -> None:
    part = call("input-available", type="dynamic-tool", toolName="loc")
    change = answers.tool_result("c", [1])
    assert answered(part, change) == part | OUTPUT


def test_the_newest_message_with_the_call_is_the_one_that_changes() -> None:
    messages = [
        message(call("input-available"), message_id="a1"),
        message(call("input-available"), message_id="a2"),
        message(call("input-available"), message_id="u", role="user"),
    ]
    result = answers.changed(messages, answers.tool_result("c", [1]))
    assert result == message((call("") | OUTPUT), message_id="a2")


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"type": "tool-output-available", "output": [1]}, OUTPUT),
        (
            {"type": "tool-output-available", "output": [1], "preliminary": True},
            OUTPUT | {"preliminary": True},
        ),
        (
            {"type": "tool-output-error", "errorText": "no"},
            {"state": "output-error", "errorText": "no"},
        ),
        (
            {"type": "tool-output-error"},
            {"state": "output-error", "errorText": "Tool execution failed"},
        ),
    ],
)
@pytest.mark.parametrize("state", ["input-streaming", *WAITING])
def test_an_output_of_an_earlier_message_settles_its_call(
    chunk: Part, expected: Part, state: str
) -> None:
    change = answers.late_output(chunk | {"toolCallId": "c"})
    assert change is not None
    assert answered(call(state), change) == call("") | expected
    assert answered(call("output-denied"), change) is None


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "text-delta", "toolCallId": "c"},
        {"type": "tool-output-available"},
        {"type": "tool-output-available", "toolCallId": 7},
    ],
)
def test_other_chunks_are_no_late_outputs(chunk: Part) -> None:
    assert answers.late_output(chunk) is None


def test_answers_that_the_stored_copy_got_are_carried_into_the_reply() -> None:
    stored = message(
        call("output-available", "1", output=1),
        call("approval-responded", "2", approval={"id": "p", "approved": True}),
        call("approval-requested", "3"),
        call("output-available", "4", output="old"),
    )
    reply = message(
        call("input-available", "1"),
        call("approval-requested", "2"),
        call("approval-requested", "3"),
        call("output-available", "4", output="new"),
        {"type": "text", "text": "on"},
    )
    assert answers.carried_over(reply, stored) == message(
        *stored["parts"][:3], *reply["parts"][3:]
    )


@pytest.mark.parametrize(
    ("states", "half"),
    [
        (["input-available", "output-available"], True),
        (["approval-requested", "output-error"], True),
        (["input-available", "approval-responded"], True),
        (["approval-requested", "output-denied"], True),
        (["input-available", "approval-requested"], False),
        (["output-available", "output-error"], False),
        (["input-streaming", "output-available"], False),
        ([], False),
    ],
)
@pytest.mark.parametrize("kind", ["tool-loc", "dynamic-tool"])
def test_a_batch_is_half_answered_while_some_calls_wait(
    states: list[str], half: bool, kind: str
) -> None:
    parts = [call(state, str(at), type=kind) for at, state in enumerate(states)]
    newer = message(role="user", message_id="u")
    assert answers.is_half_answered([message(*parts), newer]) is half
    assert not answers.is_half_answered([message(*parts), message(), newer])


@pytest.mark.parametrize(
    ("part", "pending"),
    [
        (call("approval-requested"), True),
        (call("input-available"), True),
        (call("input-available", type="tool-server"), False),
        (call("input-streaming"), False),
        (call("output-available"), False),
    ],
)
def test_a_reply_waits_for_its_client_or_for_nobody(part: Part, pending: bool) -> None:
    tools = answers.client_tool_names([{"name": "loc"}, {"name": 7}, "x", {}])
    assert tools == {"loc"}
    assert answers.has_pending_interaction([message(part)], tools) is pending


# Repair


BROKEN = {"state": "output-error", "errorText": INTERRUPTED_TEXT}


@pytest.mark.parametrize(
    ("part", "after"),
    [
        (call("input-available", type="tool-server"), BROKEN),
        (call("input-streaming"), BROKEN),
        (call("input-streaming", type="dynamic-tool", toolName="loc"), BROKEN),
        (call(""), BROKEN),
        (call("input-available"), None),
        (call("input-available", type="dynamic-tool", toolName="loc"), None),
        (call("approval-requested", type="tool-server"), None),
        (call("output-available", output=1), None),
        (call("output-denied"), None),
        (call("output-error", errorText="own"), None),
        (call("output-available", output=1, input="{"), {"input": {}}),
        (call("output-available", output=1, input='{"a":1}'), {"input": {"a": 1}}),
        (call("input-streaming", input=None), BROKEN | {"input": {}}),
        (
            call("approval-responded"),
            {"state": "output-error", "errorText": NOT_RUN_TEXT},
        ),
        (
            call("approval-responded", approval={"id": "p", "approved": False}),
            {"state": "output-denied"},
        ),
        ({"type": "text", "text": "t", "state": "streaming"}, None),
        ({"type": "tool-loc", "state": "input-available"}, None),
    ],
)
def test_a_call_that_nobody_can_answer_is_answered(
    part: Part, after: Part | None
) -> None:
    messages = [message(part), message(message_id="u", role="user")]
    before = copy.deepcopy(messages)
    changed = repaired(messages, client_tools={"loc"})
    assert changed == ([message(part | after)] if after else [])
    assert messages == before
    assert repaired(changed, client_tools={"loc"}) == []


def test_an_approved_call_is_left_to_the_continuation_that_runs_it() -> None:
    approved = message(call("approval-responded"))
    later = message(message_id="u", role="user")
    assert repaired([approved, later], continues=True) == []
    assert repaired([later, approved]) == []
