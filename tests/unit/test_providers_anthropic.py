"""The Messages API: what a handler may yield is what comes out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic import Anthropic

from django_streams.messages import Accumulator
from django_streams.messages.steps import DENIED_TEXT
from django_streams.providers import anthropic
from django_streams.turns import source

from .messages_api import Block, call, frame, reply, said, thought
from .providing import Asked, Server, add

ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}

FOUND = {
    "type": "web_search_result",
    "url": "https://a.example/",
    "title": "A",
    "encrypted_content": "opaque",
    "page_age": None,
}
SEARCH: tuple[Block, Block] = (
    call(
        "web_search", '{"query":', ' "a"}', of="server_tool_use", call_id="srvtoolu_1"
    ),
    (
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [FOUND],
        },
        [],
    ),
)
CITED = {
    "type": "web_search_result_location",
    "url": "https://a.example/",
    "title": "A",
    "cited_text": "a",
    "encrypted_index": "i",
}


def client_of(url: str) -> Any:
    return anthropic.client(base_url=url, api_key="k", max_retries=0)


async def items(*blocks: Block) -> list[Any]:
    async with Server([reply(*blocks)]) as url:
        stream = await client_of(url).messages.create(stream=True, **ASKED)
        return [item async for item in source.items(stream)]


async def test_text_is_said_as_it_comes() -> None:
    assert await items(said("Hel", "lo"), said(" you")) == ["Hel", "lo", " you"]


async def test_thoughts_are_reasoning_that_ends_with_its_signature() -> None:
    redacted: Block = ({"type": "redacted_thinking", "data": "opaque"}, [])
    assert await items(thought("h", "m", signature="sig"), redacted, said("a")) == [
        {"type": "reasoning-start", "id": "reasoning-0"},
        {"type": "reasoning-delta", "id": "reasoning-0", "delta": "h"},
        {"type": "reasoning-delta", "id": "reasoning-0", "delta": "m"},
        {
            "type": "reasoning-end",
            "id": "reasoning-0",
            "providerMetadata": {"anthropic": {"signature": "sig"}},
        },
        {"type": "reasoning-start", "id": "reasoning-1"},
        {
            "type": "reasoning-end",
            "id": "reasoning-1",
            "providerMetadata": {"anthropic": {"redactedData": "opaque"}},
        },
        "a",
    ]


async def test_a_call_has_an_id_of_ours() -> None:
    found = await items(
        call("add", '{"a": 1,', ' "b": 2}'), call("now"), call("x", "[")
    )
    ids = [one["toolCallId"] for one in found if one["type"] == "tool-input-start"]
    assert len(set(ids)) == 3
    assert "toolu_1" not in ids
    kinds = [(one["type"], one.get("input")) for one in found]
    assert kinds == [
        ("tool-input-start", None),
        ("tool-input-delta", None),
        ("tool-input-delta", None),
        ("tool-input-available", {"a": 1, "b": 2}),
        ("tool-input-start", None),
        ("tool-input-available", {}),
        ("tool-input-start", None),
        ("tool-input-delta", None),
        ("tool-input-error", {}),
    ]


async def test_a_call_of_the_provider_s_own_tool_comes_with_its_result() -> None:
    found = await items(*SEARCH)
    begun, *_, written, result = found
    assert begun["providerExecuted"] is written["providerExecuted"] is True
    assert written["input"] == {"query": "a"}
    assert result == {
        "type": "tool-output-available",
        "toolCallId": "srvtoolu_1",
        "output": [FOUND],
        "providerExecuted": True,
    }


async def test_an_own_tool_of_the_provider_that_fails_says_why() -> None:
    error = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    failed: Block = (SEARCH[1][0] | {"content": error}, [])
    *_, result = await items(SEARCH[0], failed)
    assert result["type"] == "tool-output-error"
    assert result["errorText"] == "unavailable"


async def test_sources_that_are_cited_are_named_once_behind_the_text() -> None:
    other = CITED | {"url": "https://b.example/", "title": None}
    inside = {"type": "char_location", "cited_text": "a", "document_index": 0}
    inside |= {"start_char_index": 0, "end_char_index": 1}
    found = await items(
        said("So ", citations=(CITED, inside)),
        said("it is.", citations=(CITED,)),
        *SEARCH,
        said("Truly.", citations=(CITED, other)),
    )
    first, second = "https://a.example/", "https://b.example/"
    assert found[:4] == [
        "So ",
        "it is.",
        {"type": "source-url", "sourceId": first, "url": first, "title": "A"},
        found[3],
    ]
    assert found[3]["type"] == "tool-input-start"
    assert found[-2:] == [
        "Truly.",
        {"type": "source-url", "sourceId": second, "url": second},
    ]


async def made(url: str) -> Any:
    return await client_of(url).messages.create(stream=True, **ASKED)


async def unentered(url: str) -> Any:
    return client_of(url).messages.stream(**ASKED)


async def entered(url: str) -> Any:
    return await client_of(url).messages.stream(**ASKED).__aenter__()


def blocking(url: str) -> Any:
    return Anthropic(base_url=url, api_key="k", max_retries=0).messages


async def made_blocking(url: str) -> Any:
    return await asyncio.to_thread(lambda: blocking(url).create(stream=True, **ASKED))


async def unentered_blocking(url: str) -> Any:
    return blocking(url).stream(**ASKED)


STREAMS = [made, unentered, entered, made_blocking, unentered_blocking]


@pytest.mark.parametrize("ask", STREAMS)
async def test_every_stream_of_the_clients_may_be_returned_as_it_is(ask: Any) -> None:
    server = Server([reply(thought("h", signature="s"), said("Hel", "lo"))])
    async with server as url, asyncio.timeout(10):
        found = [item async for item in source.items(await ask(url))]
        await server.left.wait()
    assert [one if isinstance(one, str) else one["type"] for one in found] == [
        "reasoning-start",
        "reasoning-delta",
        "reasoning-end",
        "Hel",
        "lo",
    ]


@pytest.mark.parametrize("ask", STREAMS)
async def test_leaving_the_reply_hangs_up_on_the_model(ask: Any) -> None:
    begun = reply(said("Hel", "lo")).partition(frame("content_block_stop", index=0))[0]
    server = Server([begun], stays=True)
    async with server as url, asyncio.timeout(10):
        found = source.items(await ask(url))
        assert await anext(found) == "Hel"
        await found.aclose()
        await server.left.wait()


def answer(turn: Asked, url: str, **options: Any) -> Any:
    return anthropic.answer(turn, model="m", client=client_of(url), **options)


async def test_a_model_is_asked_again_with_its_thoughts_and_the_results() -> None:
    server = Server(
        [
            reply(
                thought("hm", signature="sig"),
                said("Let me see. "),
                call("add", '{"a": 1, "b": 2}'),
                call("gone"),
                why="tool_use",
            )
        ],
        [reply(said("Three."))],
    )
    turn = Asked(add)
    async with server as url:
        found = await turn.answered(
            answer(turn, url, system="Be brief.", max_tokens=7, stop_sequences=["end"])
        )
    assert [one for one in found if isinstance(one, str)] == ["Let me see. ", "Three."]
    first, second = server.requests
    assert (first["system"], first["max_tokens"]) == ("Be brief.", 7)
    assert first["stop_sequences"] == ["end"]
    assert [one["name"] for one in first["tools"]] == ["add", "where"]
    assert first["tools"][0]["description"] == "The sum of two numbers."
    assert first["tools"][0]["input_schema"]["required"] == ["a", "b"]
    asked, told, results = second["messages"]
    assert asked == first["messages"][0]
    ids = [one["id"] for one in told["content"] if one["type"] == "tool_use"]
    assert told["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Let me see. "},
        {"type": "tool_use", "id": ids[0], "name": "add", "input": {"a": 1, "b": 2}},
        {"type": "tool_use", "id": ids[1], "name": "gone", "input": {}},
    ]
    assert results["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": ids[0],
            "content": '{"of": {"a": 1, "b": 2}}',
        },
        {
            "type": "tool_result",
            "tool_use_id": ids[1],
            "content": "There is no tool named gone; there is add, where.",
            "is_error": True,
        },
    ]


async def test_a_reply_that_was_interrupted_is_asked_to_be_gone_on_with() -> None:
    server = Server(
        [reply(call("add", '{"a": 1, "b": 2}'))],
        [reply(said("."))],
    )
    turn = Asked(add)
    partial = {"role": "assistant", "parts": [{"type": "text", "text": "It is "}]}
    turn.messages.append(partial)
    async with server as url:
        await turn.answered(answer(turn, url))
    first, second = server.requests
    assert [one["role"] for one in first["messages"]] == ["user", "assistant", "user"]
    assert first["messages"][2]["content"][0]["text"] == anthropic.GO_ON
    assert second["messages"][:3] == first["messages"]
    assert turn.messages[-1] is partial


async def test_the_last_time_a_model_may_not_call() -> None:
    server = Server(*([reply(call("add", '{"a": 1, "b": 2}'))] for _ in range(2)))
    turn = Asked(add, steps=2)
    async with server as url:
        found = await turn.answered(answer(turn, url))
    assert [one.get("tool_choice") for one in server.requests] == [
        None,
        {"type": "none"},
    ]
    kinds = [one["type"] for one in found]
    assert kinds.count("tool-input-available") == 1


async def test_a_model_that_pauses_in_its_own_tools_is_asked_to_go_on() -> None:
    server = Server(
        [reply(said("I search."), *SEARCH, why="pause_turn")], [reply(said("Found."))]
    )
    turn = Asked()
    search = {"type": "web_search_20250305", "name": "web_search"}
    async with server as url:
        found = await turn.answered(answer(turn, url, tools=[search]))
    assert found[-2] == "Found."
    first, second = server.requests
    assert search in first["tools"]
    assert second["messages"][1]["content"] == [
        {"type": "text", "text": "I search."},
        {
            "type": "server_tool_use",
            "id": "srvtoolu_1",
            "name": "web_search",
            "input": {"query": "a"},
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [FOUND],
        },
    ]


def test_a_denial_is_told_as_an_error() -> None:
    accumulator = Accumulator("a")
    accumulator.apply(
        {
            "type": "tool-input-available",
            "toolCallId": "c:1",
            "toolName": "pay",
            "input": {"amount": 5},
        }
    )
    accumulator.apply({"type": "tool-output-denied", "toolCallId": "c:1"})
    assert anthropic.to_messages([accumulator.message])[1]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c_1",
            "content": DENIED_TEXT,
            "is_error": True,
        }
    ]
