"""Chat completions: what a handler may yield is what comes out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from openai import OpenAI

from django_streams.providers import openai
from django_streams.turns import source

from .chat_completions import DONE, calls, event, frame
from .providing import Asked, Server, add


def test_ui_messages_become_chat_messages() -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;x"}
    assert openai.to_messages(
        [
            {
                "role": "user",
                "parts": [{"type": "text", "text": "look"}, image],
            },
            {
                "role": "assistant",
                "parts": [
                    {"type": "step-start"},
                    {"type": "reasoning", "text": "hm"},
                    {"type": "text", "text": "nice"},
                ],
            },
            {"role": "user", "parts": [{"type": "data-x", "data": 1}]},
            {"role": "user", "parts": [{"type": "text", "text": "more"}]},
        ],
        system="Be brief.",
    ) == [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;x"}},
            ],
        },
        {"role": "assistant", "content": "nice"},
        {"role": "user", "content": "more"},
    ]


def client_of(url: str) -> Any:
    return openai.client(base_url=f"{url}/v1", api_key="k", max_retries=0)


async def ask(url: str) -> Any:
    return await client_of(url).chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )


def ask_blocking(url: str) -> Any:
    client = OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )


async def test_a_stream_of_a_chat_completion_may_be_returned_as_it_is() -> None:
    server = Server(
        [
            event(role="assistant", content=""),
            event(reasoning_content="h"),
            event(reasoning_content="m"),
            event(content="Hel"),
            event(content="lo"),
            frame({"id": "c", "object": "chat.completion.chunk", "choices": []}),
            DONE,
        ]
    )
    async with server as url:
        stream = await ask(url)
        found = [item async for item in source.items(stream)]
    assert found == [
        {"type": "reasoning-start", "id": "reasoning"},
        {"type": "reasoning-delta", "id": "reasoning", "delta": "h"},
        {"type": "reasoning-delta", "id": "reasoning", "delta": "m"},
        {"type": "reasoning-end", "id": "reasoning"},
        "Hel",
        "lo",
    ]
    assert server.requests[0]["stream"] is True


async def test_a_stream_of_the_blocking_client_is_read_in_a_thread() -> None:
    server = Server([event(content="Hel"), event(content="lo"), DONE])
    async with server as url, asyncio.timeout(10):
        stream = await asyncio.to_thread(ask_blocking, url)
        assert [item async for item in source.items(stream)] == ["Hel", "lo"]
        await server.left.wait()


async def test_leaving_the_reply_hangs_up_on_the_model_of_the_blocking_client() -> None:
    server = Server([event(content="Hel"), event(content="lo")], stays=True)
    async with server as url, asyncio.timeout(10):
        found = source.items(await asyncio.to_thread(ask_blocking, url))
        assert await anext(found) == "Hel"
        await found.aclose()
        await server.left.wait()


async def test_leaving_the_reply_hangs_up_on_the_model() -> None:
    server = Server([event(content="Hel")], stays=True)
    async with server as url:
        found = source.items(await ask(url))
        assert await anext(found) == "Hel"
        await found.aclose()
        async with asyncio.timeout(5):
            await server.left.wait()


def answer(turn: Asked, url: str) -> Any:
    return openai.answer(turn, model="m", client=client_of(url))


async def test_a_model_is_asked_again_with_the_results_of_the_tools_it_called() -> None:
    model = Server(
        [
            event(content="Let me see. "),
            *calls((0, "add", '{"a":'), (1, "gone", ""), (0, None, ' 1, "b": 2}')),
        ],
        calls((0, "add", "{}")),
        calls((0, "add", "[1")),
        [event(content="Three.")],
    )
    turn = Asked(add)
    async with model as url:
        found = await turn.answered(answer(turn, url))
    assert [item for item in found if isinstance(item, str)] == [
        "Let me see. ",
        "Three.",
    ]
    inputs: list[Any] = [i for i in found if isinstance(i, dict) and "input" in i]
    ids = [one["toolCallId"] for one in inputs]
    assert len(set(ids)) == 4
    assert inputs[0]["input"] == {"a": 1, "b": 2}
    assert [len(one["messages"]) for one in model.requests] == [1, 4, 6, 8]
    said, first, unknown = model.requests[1]["messages"][1:]
    assert said["content"] == "Let me see. "
    assert [one["id"] for one in said["tool_calls"]] == ids[:2]
    assert json.loads(first["content"]) == {"of": {"a": 1, "b": 2}}
    assert unknown["content"] == "There is no tool named gone; there is add, where."
    told = model.requests[3]["messages"][-1]["content"]
    assert told == "The arguments of add are no JSON object."
    names = [one["function"]["name"] for one in model.requests[0]["tools"]]
    assert names == ["add", "where"]


async def test_a_model_that_calls_a_tool_of_the_client_is_not_asked_again() -> None:
    model = Server(calls((0, "where", "{}"), (1, "add", '{"a": 1, "b": 2}')))
    async with model as url:
        turn = Asked(add)
        found = await turn.answered(answer(turn, url))
    kinds = [item["type"] for item in found]
    assert kinds.count("tool-input-available") == 2
    assert len(model.requests) == 1


async def test_a_model_that_never_stops_calling_is_asked_so_often_and_not_more() -> (
    None
):
    model = Server(*(calls((0, "add", '{"a": 1, "b": 2}')) for _ in range(4)))
    async with model as url:
        turn = Asked(add, steps=3)
        found = await turn.answered(answer(turn, url))
    choices = [one.get("tool_choice") for one in model.requests]
    assert choices == [None, None, "none"]
    assert sum(item["type"] == "tool-input-available" for item in found) == 2
