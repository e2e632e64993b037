"""Chat completions of OpenAI and of everything that speaks like it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import Any

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


def to_messages(
    messages: Iterable[UIMessage], *, system: str | None = None
) -> list[dict[str, Any]]:
    """UI messages as the ``messages`` of a chat completion.

    Text is passed on, and of files the images; what a model cannot be told in
    this form is left out, and with it a message that is then empty.
    """
    told: list[dict[str, Any]] = []
    if system:
        told.append({"role": "system", "content": system})
    for message in messages:
        role, parts = message.get("role"), message.get("parts") or []
        text = "".join(
            part.get("text", "") for part in parts if part.get("type") == "text"
        )
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


async def items(stream: Any) -> AsyncGenerator[str | dict[str, Any], None]:
    """What a chat completion stream says: its text as strings, and reasoning,
    where the model shows it, as chunks. Closing it closes the stream."""
    reasoning = False
    try:
        async for event in stream:
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
                if text:
                    if reasoning:
                        reasoning = False
                        yield {"type": "reasoning-end", "id": "reasoning"}
                    yield text
        if reasoning:
            yield {"type": "reasoning-end", "id": "reasoning"}
    finally:
        await stream.close()
