"""What becomes of a message over several turns: calls, answers, continuations."""

from __future__ import annotations

from typing import Any

from django_streams.messages import Accumulator, answers, repaired
from django_streams.messages.repair import INTERRUPTED_TEXT
from django_streams.providers import openai

Chunk = dict[str, Any]
Message = dict[str, Any]


def tool(kind: str, call_id: str = "c", **members: Any) -> Chunk:
    return {"type": f"tool-{kind}", "toolCallId": call_id} | members


def called(call_id: str = "c", name: str = "loc") -> Chunk:
    return tool("input-available", call_id, toolName=name, input={"a": 1})


def asked(call_id: str = "c") -> Chunk:
    return tool("approval-request", call_id, approvalId=f"ask-{call_id}")


def text(words: str, text_id: str = "t") -> list[Chunk]:
    return [
        {"type": "text-start", "id": text_id},
        {"type": "text-delta", "id": text_id, "delta": words},
        {"type": "text-end", "id": text_id},
    ]


def reply(*chunks: Chunk, base: Message | None = None) -> Message:
    """The message of one turn, made of what is shown of its chunks."""
    accumulator = Accumulator(base["id"] if base else "a1", base=base)
    for chunk in chunks:
        for shown in accumulator.forwarded(chunk):
            accumulator.apply(shown)
    return accumulator.message


def answered(message: Message, *changes: answers.Change) -> Message:
    for change in changes:
        changed = answers.changed([message], change)
        assert changed is not None
        message = changed
    return message


def states(message: Message) -> list[str]:
    return [part["state"] for part in message["parts"] if "toolCallId" in part]


def texts(message: Message) -> list[str]:
    return [part["text"] for part in message["parts"] if "text" in part]


def test_a_result_and_its_continuation_are_one_message() -> None:
    first = reply({"type": "start-step"}, called())
    settled = answered(first, answers.tool_result("c", {"city": "X"}))
    start = {"type": "start", "messageMetadata": {"b": 2}}
    whole = reply(start, {"type": "start-step"}, *text("Sunny."), base=settled)
    assert whole["id"] == first["id"]
    assert whole["metadata"] == {"b": 2}
    assert (states(whole), texts(whole)) == (["output-available"], ["Sunny."])
    assert whole["parts"][1]["output"] == {"city": "X"}


def test_parallel_calls_are_answered_one_by_one_and_continued_once() -> None:
    message = reply(called("1"), called("2"))
    assert not answers.is_half_answered([message])
    message = answered(message, answers.tool_result("1", "a"))
    assert answers.is_half_answered([message])
    message = answered(message, answers.tool_result("2", "b"))
    assert not answers.is_half_answered([message])
    assert [part["output"] for part in message["parts"]] == ["a", "b"]


def test_the_same_result_twice_changes_the_message_once() -> None:
    change = answers.tool_result("c", {"city": "X"})
    message = answered(reply(called()), change)
    assert answers.changed([message], change) is None
    failed = answers.tool_result("c", failed=True, error_text="no")
    assert answers.changed([message], failed) is None


def test_approvals_in_chained_continuations_keep_all_that_was_said() -> None:
    message = reply(*text("One."), called("1"), asked("1"))
    message = answered(message, answers.tool_approval("1", True))
    output = tool("output-available", "1", output="first")
    message = reply(output, *text("Two."), called("2"), asked("2"), base=message)
    assert states(message) == ["output-available", "approval-requested"]
    message = answered(message, answers.tool_approval("2", True))
    output = tool("output-available", "2", output="second")
    message = reply(output, *text("Three."), base=message)
    assert states(message) == ["output-available", "output-available"]
    assert texts(message) == ["One.", "Two.", "Three."]
    assert message["parts"][1]["approval"] == {"id": "ask-1", "approved": True}


def test_a_reload_before_the_answer_shows_what_was_asked() -> None:
    message = reply(called(), asked())
    assert states(message) == ["approval-requested"]
    assert repaired([message, {"id": "u", "role": "user", "parts": []}]) == []
    assert states(answered(message, answers.tool_approval("c", True))) == [
        "approval-responded"
    ]


def test_a_refused_approval_is_told_to_the_model_as_a_result() -> None:
    message = answered(reply(called(), asked()), answers.tool_approval("c", False))
    assert message["parts"][0]["approval"] == {"id": "ask-c", "approved": False}
    told = openai.to_messages([message])
    assert [one["role"] for one in told] == ["assistant", "tool"]
    assert told[1]["content"] == "Tool call execution denied."


def test_a_failed_result_is_told_to_the_model_with_its_reason() -> None:
    message = reply(called(), asked())
    message = answered(message, answers.tool_approval("c", True))
    failed = answers.tool_result("c", failed=True, error_text="no such city")
    message = answered(message, failed)
    assert openai.to_messages([message])[1]["content"] == "no such city"


def test_a_round_trip_that_a_provider_says_again_is_one_call() -> None:
    settled = answered(reply(called()), answers.tool_result("c", 1))
    accumulator = Accumulator("a1", base=settled)
    again = [
        tool("input-start", toolName="loc"),
        tool("input-delta", inputTextDelta="{}"),
        called(),
    ]
    assert [accumulator.forwarded(chunk) for chunk in again] == [[], [], []]
    for chunk in (*again, tool("output-available", output=1)):
        accumulator.apply(chunk)
    assert len(accumulator.message["parts"]) == 1
    assert accumulator.message["parts"][0]["output"] == 1


def test_an_output_for_an_earlier_reply_settles_the_call_there() -> None:
    earlier = answered(reply(called(), asked()), answers.tool_approval("c", True))
    later: Message = {"id": "a2", "role": "assistant", "parts": []}
    change = answers.late_output(tool("output-available", output=1))
    assert change is not None
    changed = answers.changed([earlier, later], change)
    assert changed is not None and changed["id"] == "a1"
    assert answers.changed([changed, later], change) is None


def test_what_a_killed_run_left_is_kept_repaired_and_gone_on_with() -> None:
    cut = reply(
        *text("Let me look."),
        tool("input-start", "1", toolName="server"),
        tool("input-delta", "1", inputTextDelta='{"q'),
        called("2", "client"),
    )
    assert states(cut) == ["input-streaming", "input-available"]
    [mended] = repaired([cut], client_tools={"client"}, continues=True)
    assert states(mended) == ["output-error", "input-available"]
    assert mended["parts"][1]["errorText"] == INTERRUPTED_TEXT
    assert repaired([mended], client_tools={"client"}, continues=True) == []
    whole = reply({"type": "start", "messageId": "x"}, *text("Again."), base=mended)
    assert whole["id"] == cut["id"]
    assert texts(whole) == ["Let me look.", "Again."]


def test_reasoning_of_a_continuation_is_a_part_of_its_own() -> None:
    def thought(words: str) -> list[Chunk]:
        return [
            chunk | {"type": "reasoning" + chunk["type"][4:]} for chunk in text(words)
        ]

    first = reply(*thought("hm"), called())
    whole = reply(*thought("aha"), base=answered(first, answers.tool_result("c", 1)))
    kinds = [
        (p["type"], p["state"]) for p in whole["parts"] if p["type"] == "reasoning"
    ]
    assert kinds == [("reasoning", "done"), ("reasoning", "done")]
    assert texts(whole) == ["hm", "aha"]


def test_an_answer_during_the_reply_survives_its_end() -> None:
    accumulator = Accumulator("a1")
    for chunk in (called(), asked()):
        accumulator.apply(chunk)
    stored = answered(accumulator.message, answers.tool_approval("c", True))
    for chunk in text("Waiting."):
        accumulator.apply(chunk)
    kept = answers.carried_over(accumulator.message, stored)
    assert (states(kept), texts(kept)) == (["approval-responded"], ["Waiting."])
