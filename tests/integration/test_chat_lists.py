"""Lists of messages that clients send: what of them is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_streams.models import Message as Message_
from django_streams.turns import conversations, door, queue, transcript
from django_streams.turns.queue import Submission
from django_streams.turns.records import ConversationRef

REF = ConversationRef("agent", "room", "u:1")
pytestmark = pytest.mark.usefixtures("chat_alias")

Message = dict[str, Any]
Part = dict[str, Any]


def message(message_id: str, *parts: Part | str, role: str = "assistant") -> Message:
    said = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
    return {"id": message_id, "role": role, "parts": said}


def user(message_id: str) -> Message:
    return message(message_id, message_id, role="user")


def call(state: str, **members: Any) -> Part:
    part = {"type": "tool-loc", "toolCallId": "c", "state": state, "input": {}}
    return part | members


def store(*messages: Message) -> None:
    """As ``cf_agent_chat_messages`` does."""
    queue.sync_messages(REF, messages)


def submit(request_id: str, *messages: Message) -> None:
    queue.submit(
        REF, Submission(request_id=request_id, messages=messages, origin_ids=["u"])
    )


def stored() -> list[Message]:
    pk = conversations.find(REF)
    assert pk is not None
    return transcript.load(pk)


DONE = call("output-available", output=1)


def test_a_synchronised_list_deletes_nothing() -> None:
    store(user("u1"), message("a1", "one"))
    store(user("u2"))
    store()
    assert [m["id"] for m in stored()] == ["u1", "a1", "u2"]


def test_a_shortened_list_deletes_what_it_lacks() -> None:
    store(user("u1"), message("a1", "one"))
    submit("q1", user("u1"))
    assert stored() == [user("u1")]


@pytest.mark.parametrize("known", [[user("u1")], []])
def test_a_list_with_something_new_deletes_nothing(known: list[Message]) -> None:
    store(user("u1"), message("a1", "one"))
    submit("q1", *known, user("u2"))
    assert [m["id"] for m in stored()] == ["u1", "a1", "u2"]


def test_an_edited_question_is_stored_and_what_followed_it_goes() -> None:
    store(user("u1"), message("a1", "one"))
    edited = message("u1", "other", role="user")
    submit("q1", edited)
    assert stored() == [edited]


def test_a_reply_under_a_client_s_id_is_stored_once() -> None:
    store(user("u1"), message("a1", "one"), user("u2"), message("a2", "one"))
    submit(
        "q1",
        user("u1"),
        message("x", "one"),
        user("u2"),
        message("y", "one"),
        user("u3"),
    )
    assert [m["id"] for m in stored()] == ["u1", "a1", "u2", "a2", "u3"]


def test_a_result_in_a_client_s_list_settles_the_stored_call() -> None:
    store(user("u1"), message("a1", call("input-available"), "and more"))
    submit("q1", user("u1"), message("x", DONE))
    assert stored() == [user("u1"), message("a1", DONE, "and more")]


def test_a_stored_result_is_not_lost_to_a_client_that_waits_for_it() -> None:
    before = [user("u1"), message("a1", DONE, "done")]
    store(*before)
    store(user("u1"), message("x", call("input-available")))
    submit("q1", user("u1"), message("a1", call("approval-requested")))
    assert stored() == before


def test_a_shorter_copy_of_a_reply_does_not_overwrite_it() -> None:
    store(user("u1"), message("a1", "hello"))
    submit("q1", user("u1"), message("a1", "he"), user("u2"))
    assert stored()[1] == message("a1", "hello")


def test_an_edited_reply_is_stored() -> None:
    store(message("a1", "hello"), user("u1"))
    store(message("a1", "HELLO"))
    assert stored() == [message("a1", "HELLO"), user("u1")]


def test_results_that_come_late_do_not_change_the_order() -> None:
    store(user("u1"), message("a1", call("input-available")), message("a2", "two"))
    store(message("a1", DONE))
    assert [m["id"] for m in stored()] == ["u1", "a1", "a2"]
    assert stored()[1] == message("a1", DONE)


def test_what_providers_say_for_one_request_is_not_stored() -> None:
    ids = {"providerMetadata": {"openai": {"itemId": "i"}}}
    said = {"type": "text", "text": "t"}
    store(message("a1", said | ids, {"type": "reasoning", "text": ""} | ids))
    assert stored() == [message("a1", said)]


def test_the_reply_that_is_being_written_is_nobody_else_s_to_change() -> None:
    submit("q1", user("u1"))
    pk = conversations.find(REF)
    assert pk is not None
    assert queue.claim(pk, message_id="a1", lease=60)
    transcript.upsert(pk, message("a1", call("approval-requested"), "he"))
    store(user("u1"), message("x", DONE))
    store(user("u1"), message("a1", "edited"))
    submit("q2", user("u1"))
    assert stored()[1] == message("a1", call("approval-requested"), "he")


def test_a_list_is_encoded_before_the_conversation_is_locked() -> None:
    given = transcript.prepare([message("a1", "one"), user("u1")])
    assert all("text" in vars(one) for one in given)
    assert door.alias()


@pytest.mark.parametrize("body", ["{", "null", '{"id":"","role":"user","parts":[]}'])
def test_a_damaged_message_is_left_out_and_logged(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    store(user("u1"), message("a1", "one"), user("u2"))
    rows = Message_.objects.using(door.alias())
    rows.filter(message_id="a1").update(body=body)
    assert [m["id"] for m in stored()] == ["u1", "u2"]
    assert [json.loads(text)["id"] for text in transcript.texts(REF)] == ["u1", "u2"]
    assert "holds no message" in caplog.text
    store(user("u1"), message("a1", "one"))
    assert stored()[1] == message("a1", "one")
