"""UI messages as the Messages API takes them."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams.providers.anthropic import to_messages

Part = dict[str, Any]
STEP: Part = {"type": "step-start"}


def text(words: str) -> Part:
    return {"type": "text", "text": words}


def user(*parts: Part) -> Part:
    return {"role": "user", "parts": list(parts)}


def assistant(*parts: Part) -> Part:
    return {"role": "assistant", "parts": list(parts)}


def thought(words: str, **kept: str) -> Part:
    return {"type": "reasoning", "text": words, "providerMetadata": {"anthropic": kept}}


def call(call_id: str, **members: Any) -> Part:
    part = {"type": "tool-loc", "toolCallId": call_id, "input": {"a": 1}}
    return part | {"state": "output-available", "output": {"b": 2}} | members


def use(call_id: str) -> Part:
    return {"type": "tool_use", "id": call_id, "name": "loc", "input": {"a": 1}}


def result(call_id: str, content: str = '{"b": 2}') -> Part:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def test_steps_become_replies_and_results() -> None:
    assert to_messages(
        [
            user(text("look")),
            assistant(
                STEP,
                thought("hm", signature="sig"),
                text("so: "),
                call("c1"),
                call("c2", state="output-error", errorText="gone"),
                STEP,
                text("done"),
            ),
            user(text("more")),
        ]
    ) == [
        {"role": "user", "content": [text("look")]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig"},
                text("so: "),
                use("c1"),
                use("c2"),
            ],
        },
        {
            "role": "user",
            "content": [result("c1"), result("c2", "gone") | {"is_error": True}],
        },
        {"role": "assistant", "content": [text("done")]},
        {"role": "user", "content": [text("more")]},
    ]


def test_results_come_first_in_what_the_user_says_next() -> None:
    told = to_messages([assistant(call("c1")), user(text("and?"))])
    assert told[1] == {"role": "user", "content": [result("c1"), text("and?")]}


@pytest.mark.parametrize(
    "part",
    [
        text(""),
        text(" \n"),
        {"type": "reasoning", "text": "of another provider"},
        {"type": "data-x", "data": 1},
        {"type": "source-url", "url": "https://a.example/"},
        call("c", state="input-available"),
        call("c", providerExecuted=True),
        thought("came to nothing", signature="sig"),
    ],
)
def test_what_would_be_refused_or_has_no_form_is_left_out(part: Part) -> None:
    assert to_messages([user(text("x")), assistant(part)]) == [
        {"role": "user", "content": [text("x")]}
    ]


def test_a_reply_that_is_to_go_on_ends_without_a_blank() -> None:
    told = to_messages([user(text("x ")), assistant(text("one "), text("two \n"))])
    assert told == [
        {"role": "user", "content": [text("x ")]},
        {"role": "assistant", "content": [text("one "), text("two")]},
    ]


def test_a_redacted_thought_is_told_as_it_came() -> None:
    (told,) = to_messages([assistant(thought("", redactedData="opaque"), text("a"))])
    assert told["content"][0] == {"type": "redacted_thinking", "data": "opaque"}


def test_a_failed_tool_always_says_something() -> None:
    told = to_messages([assistant(call("c", state="output-error", errorText=""))])
    assert told[1]["content"][0]["content"] == "The tool failed."


def test_a_failed_tool_of_the_provider_is_told_by_its_code() -> None:
    part = call(
        "srvtoolu_1",
        type="tool-web_search",
        state="output-error",
        errorText="unavailable",
        providerExecuted=True,
        callProviderMetadata={"anthropic": {"type": "server_tool_use"}},
    )
    (told,) = to_messages([assistant(part)])
    assert told["content"][1] == {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": {
            "type": "web_search_tool_result_error",
            "error_code": "unavailable",
        },
    }


def file(url: str, kind: str, **members: str) -> Part:
    return {"type": "file", "url": url, "mediaType": kind} | members


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (
            file("data:image/png;base64,QUI=", "image/png"),
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": "image/png",
                    "data": "QUI=",
                },
            },
        ),
        (
            file("https://a.example/a.jpg", "image/jpeg"),
            {
                "type": "image",
                "source": {"type": "url", "url": "https://a.example/a.jpg"},
            },
        ),
        (
            file("data:application/pdf,%25PDF", "application/pdf", filename="a.pdf"),
            {
                "type": "document",
                "source": {
                    "type": "base64",
                    "media_type": "application/pdf",
                    "data": "JVBERg==",
                },
                "title": "a.pdf",
            },
        ),
        (
            file("http://a.example/a.pdf", "application/pdf"),
            {
                "type": "document",
                "source": {"type": "url", "url": "http://a.example/a.pdf"},
            },
        ),
        (file("/media/a.png", "image/png"), None),
        (file("https://a.example/a.svg", "image/svg+xml"), None),
        (file("data:image/png;base64,?", "image/png"), None),
        (file("data:image/png", "image/png"), None),
    ],
)
def test_images_and_pdfs_are_told(part: Part, block: Part | None) -> None:
    told = to_messages([user(part, text("look"))])
    content = [text("look")] if block is None else [block, text("look")]
    assert told == [{"role": "user", "content": content}]
