"""Handlers that fail, and what their clients read."""

from __future__ import annotations

from typing import Any

import pytest

from django_streams import PublicError

from .chatting import Script, Tab, make_agent, message_text, responses, stored, text_of

pytestmark = pytest.mark.usefixtures("chat")


@pytest.mark.parametrize(
    ("error", "exposed", "expected"),
    [
        (ValueError("secret"), False, "Internal error (reference "),
        (ValueError("secret"), True, "ValueError: secret"),
        (PublicError("Out of credit."), False, "Out of credit."),
    ],
)
async def test_an_exception_ends_the_turn_and_keeps_the_partial(
    error: Exception,
    exposed: bool,
    expected: str,
    chat_alias: str,
    settings: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.DJANGO_STREAMS = {"DATABASE": chat_alias, "EXPOSE_ERRORS": exposed}
    script = Script()
    agent = script.agent()
    script.say("par", "tial", error)
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
        assert (await tab.probe())["type"] == "cf_agent_stream_resuming"
    last = frames[-1]
    assert last["error"] is True
    assert last["body"].startswith(expected)
    assert "replay" not in last and "outcome" not in last
    assert text_of(frames) == "partial"
    assert message_text((await stored(agent))[1]) == "partial"
    if isinstance(error, ValueError):
        assert "secret" in caplog.text


async def test_an_exception_before_the_first_word_is_told_too() -> None:
    async def on_chat_message(self: Any, turn: Any) -> str:
        raise PublicError("no")

    agent = make_agent(on_chat_message)
    async with Tab(agent) as tab:
        await tab.ask("x")
        (last,) = responses(await tab.done())
    assert (last["body"], last["error"], last["done"]) == ("no", True, True)


async def test_an_error_chunk_ends_the_turn_with_its_text() -> None:
    script = Script()
    agent = script.agent()
    script.say("x", {"type": "error", "errorText": "boom"}, "never")
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = responses(await tab.done())
    told, last = frames[-2:]
    assert (told["body"], told["error"], told["done"]) == ("boom", True, False)
    assert (last["body"], last["outcome"], last["done"]) == ("", "error", True)
    assert script.ended.is_set()


async def test_an_item_that_is_no_chunk_is_an_error_and_not_the_end_of_the_agent() -> (
    None
):
    script = Script()
    agent = script.agent()
    async with Tab(agent) as tab:
        for at, bad in enumerate([7, {"no": "type"}, {"type": "x", "n": float("nan")}]):
            script.say("ok", bad)
            await tab.ask("x", f"q{at}")
            assert (await tab.done(f"q{at}"))[-1]["error"] is True
        script.say("fine")
        script.end()
        await tab.ask("x", "q9")
        assert text_of(await tab.done("q9"), "q9") == "fine"


def cannot(self: Any, message: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError("no")


def spoils(self: Any, message: dict[str, Any]) -> dict[str, Any]:
    return message | {"metadata": float("nan")}


def forgets(self: Any, message: dict[str, Any]) -> None:
    return None


hooks_that_fail = pytest.mark.parametrize("hook", [cannot, spoils, forgets])


@hooks_that_fail
async def test_a_message_that_cannot_be_sanitised_is_not_stored(hook: Any) -> None:
    agent = Script().agent(sanitize_message=hook)
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert frames[-1]["error"] is True
    assert frames[-1]["body"] == "Failed to save the response."
    assert await stored(agent) == []


@hooks_that_fail
async def test_a_reply_that_cannot_be_saved_ends_as_an_error(
    hook: Any,
) -> None:
    def sanitize_message(self: Any, message: dict[str, Any]) -> Any:
        return hook(self, message) if message["role"] == "assistant" else message

    script = Script()
    agent = script.agent(sanitize_message=sanitize_message)
    script.say("x")
    script.end()
    async with Tab(agent) as tab:
        await tab.ask("x")
        frames = await tab.done()
    assert frames[-1]["error"] is True
    assert frames[-1]["body"] == "Failed to save the response."
    assert len(await stored(agent)) == 1


async def test_an_agent_that_cannot_be_made_ends_its_turns() -> None:
    async def on_chat_message(self: Any, turn: Any) -> str:
        return "never"

    made = 0

    def __init__(self: Any) -> None:
        nonlocal made
        made += 1
        if made > 1:
            raise RuntimeError("no")

    agent = make_agent(on_chat_message, __init__=__init__)
    async with Tab(agent) as tab:
        await tab.ask("x")
        assert (await tab.done())[-1]["error"] is True


async def test_async_hooks_are_awaited() -> None:
    async def sanitize_message(self: Any, message: dict[str, Any]) -> dict[str, Any]:
        return message | {"metadata": {"clean": True}}

    script = Script()
    agent = script.agent(sanitize_message=sanitize_message)
    script.say("x")
    script.end()
    async with Tab(agent) as tab:
        await tab.ask("x")
        await tab.done()
    assert (await stored(agent))[1]["metadata"] == {"clean": True}
