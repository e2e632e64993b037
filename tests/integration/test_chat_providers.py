"""Models that call tools, in turns of an agent: who runs what."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from django_streams.providers import anthropic
from tests.unit.messages_api import call, reply, said, thought
from tests.unit.providing import Server

from .chatting import Tab, chunks, make_agent, stored, text_of

pytestmark = pytest.mark.usefixtures("chat")


async def test_claude_is_told_what_the_agent_s_tools_return() -> None:
    ran: list[int] = []

    def double(number: int) -> int:
        ran.append(number)
        return number * 2

    model = Server(
        [reply(thought("hm", signature="s"), call("double", '{"number": 4}'))],
        [reply(said("It is 8."))],
    )
    async with model as url:

        def on_chat_message(self: Any, turn: Any) -> Any:
            client = anthropic.client(base_url=url, api_key="k", max_retries=0)
            return anthropic.answer(turn, model="m", client=client)

        agent = make_agent(on_chat_message, tools=[double])
        async with Tab(agent) as tab:
            await tab.ask("x")
            assert text_of(await tab.done()) == "It is 8."
    assert ran == [4]
    _, told, results = model.requests[1]["messages"]
    assert told["content"][0]["signature"] == "s"
    assert results["content"][0]["content"] == "8"
    _, answer = await stored(agent)
    kinds = [part["type"] for part in answer["parts"]]
    assert kinds == ["step-start", "reasoning", "tool-double", "step-start", "text"]
    asked = {"role": "user", "parts": [{"type": "text", "text": "x"}]}
    assert anthropic.to_messages([asked, answer]) == [
        *model.requests[1]["messages"],
        {"role": "assistant", "content": [{"type": "text", "text": "It is 8."}]},
    ]


async def test_a_tool_of_a_pydantic_ai_agent_runs_once_whoever_else_has_it() -> None:
    ran: list[str] = []

    async def model(messages: list[Any], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="double", json_args='{"number": 4}')}
        else:
            yield "It is 8."

    helper: Agent[None, str] = Agent(FunctionModel(stream_function=model))

    @helper.tool_plain(name="double")
    def theirs(number: int) -> str:
        ran.append("theirs")
        return "8" * 900

    def double(number: int) -> int:
        ran.append("ours")
        return number * 2

    def on_chat_message(self: Any, turn: Any) -> Any:
        return helper.run_stream_events(turn.text)

    agent = make_agent(on_chat_message, tools=[double])
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert text_of(frames) == "It is 8."
    assert ran == ["theirs"]
    (written,) = [
        one for one in chunks(frames) if one["type"] == "tool-input-available"
    ]
    assert written["providerExecuted"] is True
    _, answer = await stored(agent)
    (part,) = [one for one in answer["parts"] if one["type"] == "tool-double"]
    assert part["state"] == "output-available"
    assert part["output"] == "8" * 900
