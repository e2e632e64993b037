"""The handlers on the page of providers, run against servers that speak like them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from django_streams.turns import source
from tests.sizes import ROOT
from tests.unit.chat_completions import DONE, event
from tests.unit.messages_api import reply, said
from tests.unit.providing import Asked, Server

PAGE = (ROOT / "docs/reference/providers.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"```python\n# ([\w-]+)\n(.*?)```", PAGE, re.DOTALL))


def example(name: str) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": f"example_{name}"}
    exec(compile(EXAMPLES[name], name, "exec"), space)  # noqa: S102
    return space


async def answered(handler: Any, turn: Asked) -> str:
    result = await source.call(lambda turn: handler(None, turn), turn)
    found = await turn.answered(source.items(result))
    return "".join(one for one in found if isinstance(one, str))


def test_every_example_is_run_here() -> None:
    assert sorted(EXAMPLES) == ["anthropic", "items", "openai", "pydantic-ai"]


@pytest.mark.parametrize(
    ("name", "agent", "text"),
    [("openai", "SupportAgent", "Hello"), ("items", "LoudAgent", "HELLO")],
)
async def test_the_handlers_for_openai_say_what_it_says(
    name: str, agent: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Server([event(content="Hello"), DONE]) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert await answered(example(name)[agent].on_chat_message, Asked()) == text


async def test_the_handler_for_anthropic_says_what_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = example("anthropic")["SupportAgent"].on_chat_message
    server = Server([reply(said("Hello"))])
    async with server as url:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        assert await answered(handler, Asked()) == "Hello"
    assert [one["name"] for one in server.requests[0]["tools"]] == [
        "where",
        "web_search",
    ]


async def test_the_handler_for_pydantic_ai_says_what_it_says() -> None:
    space = example("pydantic-ai")
    with space["helper"].override(model=TestModel(custom_output_text="Hello")):
        said = await answered(space["SupportAgent"].on_chat_message, Asked())
    assert said == "Hello"
