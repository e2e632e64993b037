"""Chat completions of OpenAI and of everything that speaks like it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from ..messages.steps import steps
from .calls import Call
from .events import events
from .rounds import Said, rounds, theirs

UIMessage = dict[str, Any]


def client(**options: Any) -> Any:
    """An ``AsyncOpenAI`` client; address and key come from the environment."""
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise ImportError(
            "this needs the openai package: pip install 'django-streams[openai]'"
        ) from error
    return AsyncOpenAI(**options)


_default_client = client


def to_messages(
    messages: Iterable[UIMessage], *, system: str | None = None
) -> list[dict[str, Any]]:
    """UI messages as the ``messages`` of a chat completion.

    Text is passed on, of files the images, and tool calls with their results;
    what a model cannot be told in this form is left out, and with it a message
    that is then empty.
    """
    told: list[dict[str, Any]] = []
    if system:
        told.append({"role": "system", "content": system})
    for message in messages:
        role, parts = message.get("role"), message.get("parts") or []
        if role == "assistant":
            told += _reply(message)
            continue
        text = _text(parts)
        images = [
            {"type": "image_url", "image_url": {"url": part.get("url", "")}}
            for part in parts
            if part.get("type") == "file"
            and str(part.get("mediaType", "")).startswith("image/")
        ]
        if images and role == "user":
            content: Any = [{"type": "text", "text": text}] if text else []
            told.append({"role": role, "content": [*content, *images]})
        elif text:
            told.append({"role": role, "content": text})
    return told


def _text(parts: Iterable[dict[str, Any]]) -> str:
    return "".join(part.get("text", "") for part in parts if part.get("type") == "text")


def _reply(message: UIMessage) -> Iterator[dict[str, Any]]:
    text = ""
    for step in steps(message):
        text += _text(step.said)
        # What the provider ran itself it knows nothing of in this form.
        ours = [one for one in step.results if not one.provided]
        if not ours:
            continue
        yield from _calls(text, ours)
        text = ""
    if text:
        yield {"role": "assistant", "content": text}


def _calls(text: str, results: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """What was said, then calls that were made, and what came of each."""
    calls = [
        {
            "id": one.call_id,
            "type": "function",
            "function": {"name": one.name, "arguments": json.dumps(one.input)},
        }
        for one in results
    ]
    yield {"role": "assistant", "content": text or None, "tool_calls": calls}
    for one in results:
        yield {"role": "tool", "tool_call_id": one.call_id, "content": one.text}


async def items(stream: Any) -> AsyncGenerator[str | dict[str, Any], None]:
    """What a chat completion stream says: its text as strings; reasoning, where
    the model shows it, and tool calls as chunks.

    The stream may be one of the blocking client, which is read in a thread.
    Closing it closes the stream.
    """
    reasoning = False
    calls: dict[int, Call] = {}
    async with aclosing(events(stream)) as said:
        async for event in said:
            for choice in getattr(event, "choices", None) or ():
                delta = choice.delta
                thought = getattr(delta, "reasoning_content", None)
                if thought:
                    if not reasoning:
                        reasoning = True
                        yield {"type": "reasoning-start", "id": "reasoning"}
                    yield {
                        "type": "reasoning-delta",
                        "id": "reasoning",
                        "delta": thought,
                    }
                text = getattr(delta, "content", None)
                written = getattr(delta, "tool_calls", None) or ()
                if (text or written) and reasoning:
                    reasoning = False
                    yield {"type": "reasoning-end", "id": "reasoning"}
                if text:
                    yield text
                for piece in written:
                    # Some servers send no index where there is one call.
                    call = calls.setdefault(getattr(piece, "index", None) or 0, Call())
                    for chunk in call.take(*_piece(piece)):
                        yield chunk
    if reasoning:
        yield {"type": "reasoning-end", "id": "reasoning"}
    for at in sorted(calls):
        for chunk in calls[at].end():
            yield chunk


def _piece(piece: Any) -> tuple[str | None, str | None]:
    function = getattr(piece, "function", None)
    return getattr(function, "name", None), getattr(function, "arguments", None)


async def answer(
    turn: Any,
    *,
    model: str,
    system: str | None = None,
    client: Any = None,
    **options: Any,
) -> AsyncGenerator[str | dict[str, Any], None]:
    """A handler's answer to *turn* by a model that may use tools.

    The model is told of the agent's tools and of those of the client. What it
    calls of the agent's is run, and it is asked again with the results, until it
    calls none, or one for which the client or a person is needed, at most
    ``turn.max_tool_steps`` times; the last time it may not call any.
    *client* is an ``AsyncOpenAI`` client, by default :func:`client`; *options* go
    along with each request.
    """
    asked = _default_client() if client is None else client
    clients = [{"type": "function", "function": one} for one in theirs(turn)]
    tools = [*turn.tools.to_openai(), *clients]

    async def ask(messages: list[UIMessage], last: bool) -> Said:
        told: dict[str, Any] = {"tools": tools} if tools else {}
        if tools and last:
            told["tool_choice"] = "none"
        return items(
            await asked.chat.completions.create(
                model=model,
                messages=to_messages(messages, system=system),
                stream=True,
                **told,
                **options,
            )
        )

    names = {one["function"].get("name") for one in tools}
    async with aclosing(rounds(turn, ask, names=names)) as said:
        async for item in said:
            yield item
