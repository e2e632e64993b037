"""A client's list against what is stored: ids, results, copies, deletions."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.messages import reconcile, stale_ids, taken
from django_streams.messages.calls import same_json

Message = dict[str, Any]
Part = dict[str, Any]


def message(message_id: str, *parts: Part | str, role: str = "assistant") -> Message:
    said = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return {"id": message_id, "role": role, "parts": said}


def call(state: str, call_id: str = "c", **members: Any) -> Part:
    part = {
        "type": "tool-loc",
        "toolCallId": call_id,
        "state": state,
        "input": {"a": 1},
    }
    return part | members


def user(message_id: str, text: str = "hi") -> Message:
    return message(message_id, text, role="user")


STEP: Part = {"type": "step-start"}


def ids(messages: list[Message]) -> list[str]:
    return [m["id"] for m in messages]


# Ids


def test_a_reply_with_the_same_text_takes_the_stored_id() -> None:
    stored = [user("u1"), message("s1", "hello")]
    assert ids(reconcile([user("u1"), message("x", "hello"), user("u2")], stored)) == [
        "u1",
        "s1",
        "u2",
    ]


def test_equal_replies_pair_in_order_and_each_stored_one_once() -> None:
    stored = [message("s1", "ok"), message("s2", "ok")]
    incoming = [message("x", "ok"), message("y", "ok"), message("z", "ok")]
    assert ids(reconcile(incoming, stored)) == ["s1", "s2", "z"]


def test_a_reply_with_another_text_keeps_its_id() -> None:
    assert ids(reconcile([message("x", "hi")], [message("s1", "hello")])) == ["x"]


def test_an_id_that_a_message_names_itself_is_never_taken_by_another() -> None:
    stored = [message("s1", "ok")]
    incoming = [message("x", "ok"), message("s1", "ok")]
    assert ids(reconcile(incoming, stored)) == ["x", "s1"]


def test_messages_with_tool_calls_do_not_shift_the_pairing_of_texts() -> None:
    stored = [message("s1", call("output-available", output=1)), message("s2", "ok")]
    assert ids(reconcile([message("x", "ok")], stored)) == ["s2"]


def test_provider_ids_that_are_not_stored_do_not_matter() -> None:
    copy = message(
        "x",
        {
            "type": "text",
            "text": "ok",
            "providerMetadata": {"openai": {"itemId": "i"}},
        },
    )
    assert ids(reconcile([copy], [message("s1", "ok")])) == ["s1"]


def test_users_messages_keep_their_ids() -> None:
    assert ids(reconcile([user("x")], [user("u1")])) == ["x"]


@pytest.mark.parametrize(
    ("copy", "matches"),
    [
        (call("output-available", output=1), True),
        (call("input-available", input={"a": 1.0}), True),
        (call("input-available", toolName="loc"), True),
        (call("input-available", input={"a": True}), False),
        (call("input-available", input={"b": 1}), False),
        (call("input-available", type="tool-other"), False),
        (call("input-available", call_id="other"), False),
    ],
)
def test_a_shared_call_names_the_message_if_it_is_the_same_call(
    copy: Part, matches: bool
) -> None:
    stored = [message("s1", STEP, call("input-available"))]
    found = reconcile([message("x", copy), user("u")], stored)
    assert found[0]["id"] == ("s1" if matches else "x")


def test_one_call_that_differs_is_enough_to_be_another_message() -> None:
    stored = [message("s1", call("input-available"), call("input-available", "d"))]
    copy = message(
        "x", call("input-available"), call("input-available", "d", input={"other": 1})
    )
    assert ids(reconcile([copy], stored)) == ["x"]


# Results


@pytest.mark.parametrize(
    "waiting", ["input-available", "approval-requested", "approval-responded"]
)
@pytest.mark.parametrize(
    "settled",
    [
        {"state": "output-available", "output": {"city": "X"}},
        {"state": "output-error", "errorText": "no"},
        {"state": "output-denied", "approval": {"id": "p", "approved": False}},
    ],
)
def test_a_call_that_a_copy_waits_for_takes_the_stored_result(
    waiting: str, settled: Part
) -> None:
    stored = [message("s1", call("", leftover=1) | settled)]
    [copy] = reconcile([message("s1", call(waiting))], stored)
    assert copy["parts"] == [call("") | settled]


def test_a_call_without_a_stored_result_stays_as_the_client_has_it() -> None:
    stored = [message("s1", call("input-available"))]
    incoming = [message("s1", call("output-available", output=1))]
    assert reconcile(incoming, stored) == incoming


def test_a_call_that_the_copy_has_a_result_for_keeps_it() -> None:
    stored = [message("s1", call("output-available", output=1))]
    incoming = [message("s1", call("output-error", errorText="own"))]
    assert reconcile(incoming, stored) == incoming


def test_only_the_field_of_the_stored_state_is_taken() -> None:
    stored = [message("s1", call("output-error", errorText="no", output="stray"))]
    [copy] = reconcile([message("s1", call("input-available"))], stored)
    assert copy["parts"] == [call("output-error", errorText="no")]


# Stale copies


def test_a_second_copy_of_calls_that_are_over_is_left_out() -> None:
    stored = [message("s1", call("output-available", output=1), "done")]
    copy = message("x", STEP, call("input-available"))
    answer = message("s1", call("output-available", output=1), "done")
    assert ids(reconcile([answer, copy, user("u")], stored)) == ["s1", "u"]


@pytest.mark.parametrize(
    "copy",
    [
        message("x", call("input-available"), "and more"),
        message("x", call("output-available", output=1)),
        message("x", STEP),
        user("x"),
    ],
)
def test_a_copy_that_says_more_is_kept(copy: Message) -> None:
    stored = [message("s1", call("output-available", output=1))]
    assert "x" in ids(reconcile([stored[0], copy, user("u")], stored))


def test_the_last_message_is_never_left_out() -> None:
    stored = [message("s1", call("output-available", output=1))]
    copy = message("x", call("input-available"))
    assert ids(reconcile([stored[0], copy], stored)) == ["s1", "x"]


# Deletions


@pytest.mark.parametrize(
    ("submitted", "stale"),
    [
        (["m1", "m3"], ["m2"]),
        (["m1"], ["m2", "m3"]),
        (["m1", "m2", "m3"], []),
        (["m1", "new"], []),
        (["new"], []),
        ([], []),
    ],
)
def test_messages_are_stale_when_the_list_is_a_part_of_what_is_stored(
    submitted: list[str], stale: list[str]
) -> None:
    assert stale_ids(submitted, ["m1", "m2", "m3"]) == stale


# What a copy adds


STORED = message("s1", STEP, "hello", call("input-available"), "and more")


@pytest.mark.parametrize(
    "copy",
    [
        STORED,
        message("s1", STEP),
        message("s1", STEP, "hel"),
        message("s1", "hello"),
        message("s1", STEP, "hello", call("input-streaming")),
        message("s1", {"type": "reasoning", "text": " "}, STEP, "hello"),
        message("s1"),
    ],
)
def test_a_copy_that_is_behind_changes_nothing(copy: Message) -> None:
    assert taken(copy, STORED) is None


def test_a_result_of_a_copy_that_is_behind_is_taken_over() -> None:
    copy = message("s1", STEP, "hello", call("output-available", output=1))
    assert taken(copy, STORED) == message(
        "s1", STEP, "hello", call("output-available", output=1), "and more"
    )


@pytest.mark.parametrize(
    "answer",
    [
        call("output-available", output=2, input={"other": 1}),
        call("output-available", "d", output=2),
    ],
)
def test_a_result_of_another_call_is_not_taken_for_this_one(answer: Part) -> None:
    stored = message("s1", call("input-available"))
    result = taken(message("s1", call("input-available"), answer), stored)
    assert result is None or result["parts"][0] == call("input-available")


def test_a_first_result_is_not_overwritten() -> None:
    stored = message("s1", call("output-available", output=1))
    copy = message("s1", call("output-available", output=2))
    assert taken(copy, stored) is None


def test_an_edited_reply_replaces_the_stored_one_and_keeps_its_results() -> None:
    stored = message("s1", "hello", call("output-available", output=1))
    stored["metadata"] = {"model": "m", "tokens": 1}
    copy = message("s1", "HELLO", call("input-available"))
    copy["metadata"] = {"tokens": 2}
    edited = message("s1", "HELLO", call("output-available", output=1))
    edited["metadata"] = {"model": "m", "tokens": 2}
    assert taken(copy, stored) == edited


@pytest.mark.parametrize("copy", [("hello",), ("hel", "!"), ("hello", "!")])
def test_a_copy_that_goes_further_is_taken(copy: tuple[str, ...]) -> None:
    stored = message("s1", "hel")
    assert taken(message("s1", *copy), stored) == message("s1", *copy)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": [2]}, {"b": [2.0], "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {}, False),
        ([1], [1, 2], False),
        ("1", 1, False),
        ({}, [], False),
        (False, False, True),
    ],
)
def test_json_is_compared_as_clients_do(one: Any, other: Any, same: bool) -> None:
    assert same_json(one, other) is same
