"""Runs of agents of pydantic-ai: what a handler may yield is what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
)
from pydantic_ai.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
)
from pydantic_ai.models.test import TestModel

from django_streams.messages import Accumulator, Grammar
from django_streams.providers import pydantic_ai
from django_streams.turns import source

Agents = Agent[None, Any]


class Pair(BaseModel):
    a: int
    b: int


def adder(model: Any, **options: Any) -> Agents:
    agent: Agents = Agent(model, **options)

    @agent.tool_plain(retries=2)
    def add(a: int, b: int) -> dict[str, Any]:
        if a < 0:
            raise ModelRetry("a is below 0")
        return {"sum": a + b, "pair": Pair(a=a, b=b), "long": "x" * 900}

    return agent


async def collect(run: Any) -> list[Any]:
    return [item async for item in source.items(run)]


def reply_of(items: list[Any]) -> dict[str, Any]:
    """The message that is kept of *items*."""
    grammar, reply = Grammar("a1", text_id="t"), Accumulator("a1")
    for item in items:
        said = grammar.text(item) if isinstance(item, str) else grammar.chunk(item)
        for chunk in said:
            for shown in reply.forwarded(chunk):
                reply.apply(shown)
    for chunk in grammar.finish():
        reply.apply(chunk)
    return reply.message


async def adding(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    """Thinks, calls twice under one id, once in vain, and says the end."""
    match sum(isinstance(one, ModelResponse) for one in messages):
        case 0:
            yield {0: DeltaThinkingPart(content="h")}
            yield {0: DeltaThinkingPart(content="m", signature="sig")}
            yield "Let me see. "
            yield {
                2: DeltaToolCall(name="add", json_args='{"a": -1,', tool_call_id="t")
            }
            yield {2: DeltaToolCall(json_args=' "b": 2}')}
        case 1:
            args = '{"a": 1, "b": 2}'
            yield {0: DeltaToolCall(name="add", json_args=args, tool_call_id="t")}
        case _:
            yield "Three"
            yield "."


async def test_a_run_is_told_step_by_step_with_its_calls_and_their_outcome() -> None:
    agent = adder(FunctionModel(stream_function=adding))
    found = await collect(agent.run_stream_events("1 + 2"))
    kinds = [one if isinstance(one, str) else one["type"] for one in found]
    assert kinds == [
        "start-step",
        "reasoning-start",
        "reasoning-delta",
        "reasoning-delta",
        "reasoning-end",
        "Let me see. ",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-error",
        "finish-step",
        "start-step",
        "tool-input-start",
        "tool-input-delta",
        "tool-input-available",
        "tool-output-available",
        "finish-step",
        "start-step",
        "Three",
        ".",
        "finish-step",
    ]
    assert found[4]["providerMetadata"]["pydantic_ai"]["signature"] == "sig"
    failed, output = found[10], found[16]
    assert failed["errorText"] == "a is below 0"
    assert output["output"]["sum"] == 3
    assert output["output"]["pair"] == {"a": 1, "b": 2}
    ids = [found[at]["toolCallId"] for at in (6, 9, 10, 13, 15, 16)]
    assert ids == [ids[0]] * 3 + [ids[3]] * 3
    assert "t" not in ids
    assert ids[0] != ids[3]


async def test_a_tool_that_the_agent_runs_is_left_to_it_and_its_result_kept() -> None:
    agent = adder(FunctionModel(stream_function=adding))
    found = await collect(agent.run_stream_events("1 + 2"))
    begun = [one for one in found if isinstance(one, dict) and "toolName" in one]
    assert len(begun) == 4
    assert all(one["providerExecuted"] for one in begun)
    calls = [p for p in reply_of(found)["parts"] if p["type"] == "tool-add"]
    assert [one["state"] for one in calls] == ["output-error", "output-available"]
    # A provider's own results are cut before they are stored.
    assert [one["providerExecuted"] for one in calls] == [False, False]


async def test_what_was_said_is_the_history_of_the_next_run() -> None:
    agent = adder(FunctionModel(stream_function=adding))
    asked = {"role": "user", "parts": [{"type": "text", "text": "1 + 2"}]}
    reply = reply_of(await collect(agent.run_stream_events("1 + 2")))
    again = {"role": "user", "parts": [{"type": "text", "text": "and?"}]}
    history = pydantic_ai.to_messages([asked, reply, again])
    heard: list[ModelMessage] = []

    async def listening(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str]:
        heard.extend(messages)
        yield "Yes."

    agent = adder(FunctionModel(stream_function=listening))
    run = agent.run_stream_events(message_history=history)
    assert "Yes." in await collect(run)
    parts = [(one.kind, [part.part_kind for part in one.parts]) for one in heard]
    assert parts == [
        ("request", ["user-prompt"]),
        ("response", ["thinking", "text", "tool-call"]),
        ("request", ["tool-return"]),
        ("response", ["tool-call"]),
        ("request", ["tool-return"]),
        ("response", ["text"]),
        ("request", ["user-prompt"]),
    ]
    thought, _, call = told(heard[1])
    assert (thought.content, thought.signature) == ("hm", "sig")
    (failed,), (output,) = told(heard[2]), told(heard[4])
    assert failed.tool_call_id == call.tool_call_id
    assert (failed.content, failed.outcome) == ("a is below 0", "failed")
    assert output.content["sum"] == 3
    assert len(output.content["long"]) == 900


def told(message: ModelMessage) -> list[Any]:
    return list(message.parts)


@pytest.mark.parametrize(
    ("kind", "text"), [(str, "success (no tool calls)"), (Pair, '{"a": 0, "b": 0}')]
)
async def test_a_result_is_its_output(kind: Any, text: str) -> None:
    agent: Agents = Agent(TestModel(), output_type=kind)
    assert await collect(await agent.run("x")) == [text]
    assert "".join(await collect(agent.run_stream("x"))) == text
    async with agent.run_stream("x") as entered:
        assert "".join(await collect(entered)) == text


async def test_events_that_were_begun_to_be_read_may_be_handed_on() -> None:
    agent: Agents = Agent(TestModel(custom_output_text="a b"))
    async with agent.run_stream_events("x") as events:
        assert await collect(events) == [
            {"type": "start-step"},
            "a ",
            "b",
            {"type": "finish-step"},
        ]


async def test_a_structured_output_is_the_call_of_its_tool() -> None:
    agent: Agents = Agent(TestModel(), output_type=Pair)
    (_, call) = reply_of(await collect(agent.run_stream_events("x")))["parts"]
    assert call["type"] == "tool-final_result"
    assert call["state"] == "output-available"
    assert call["input"] == {"a": 0, "b": 0}


async def test_a_text_that_a_function_makes_of_the_output_is_said() -> None:
    def shout(text: str) -> str:
        return text.upper()

    agent: Agents = Agent(TestModel(), output_type=shout)
    assert (await collect(agent.run_stream_events("x")))[-2] == "A"


async def test_a_tool_of_the_model_s_provider_comes_with_its_result() -> None:
    async def searching(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[Any]:
        of: dict[str, Any] = {"tool_name": "web_search", "tool_call_id": "s"}
        yield {0: NativeToolCallPart(args={"query": "a"}, **of)}
        yield {1: NativeToolReturnPart(content=[{"url": "b"}], **of)}
        yield "Found."

    agent: Agents = Agent(FunctionModel(stream_function=searching))
    reply = reply_of(await collect(agent.run_stream_events("x")))
    _, call, text = reply["parts"]
    assert call["type"] == "tool-web_search"
    assert call["providerExecuted"] is True
    assert (call["input"], call["output"]) == ({"query": "a"}, [{"url": "b"}])
    assert text["text"] == "Found."
    (told,) = pydantic_ai.to_messages([reply])
    assert [part.part_kind for part in told.parts] == ["text"]


async def test_nodes_of_a_run_are_refused() -> None:
    agent: Agents = Agent(TestModel())
    with pytest.raises(TypeError, match="events of a run are needed"):
        await collect(agent.iter("x"))
    with pytest.raises(TypeError, match="a run of an agent is needed"):
        await collect(agent)


async def test_leaving_the_reply_ends_the_run() -> None:
    ended = asyncio.Event()

    async def endless(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str]:
        try:
            yield "a"
            await asyncio.Event().wait()
        finally:
            ended.set()

    agent: Agents = Agent(FunctionModel(stream_function=endless))
    for run in (agent.run_stream_events("x"), agent.run_stream("x")):
        ended.clear()
        found = source.items(run)
        async with asyncio.timeout(10):
            while await anext(found) != "a":
                pass
            await found.aclose()
            await ended.wait()


async def test_what_the_model_raises_comes_through() -> None:
    async def broken(
        messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str]:
        yield "a"
        raise LookupError("no model")

    agent: Agents = Agent(FunctionModel(stream_function=broken))
    with pytest.raises(LookupError):
        await collect(agent.run_stream_events("x"))


def file(url: str, kind: str) -> dict[str, Any]:
    return {"type": "file", "url": url, "mediaType": kind}


def test_files_are_told_by_address_or_with_their_data() -> None:
    (told,) = pydantic_ai.to_messages(
        [
            {"role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "parts": [
                    {"type": "text", "text": "look"},
                    file("https://a.example/a.png", "image/png"),
                    file("https://a.example/a.pdf", "application/pdf"),
                    file("data:text/plain,a%20b", "text/plain"),
                    file("data:application/zip;base64,QUI=", "application/zip"),
                    file("/media/a.png", "image/png"),
                ],
            },
        ]
    )
    system, prompt = told.parts
    assert system.content == "Be brief."
    text, image, document, data = prompt.content
    assert text == "look"
    assert (image.kind, image.url) == ("image-url", "https://a.example/a.png")
    assert document.kind == "document-url"
    assert (data.data, data.media_type) == (b"a b", "text/plain")
