"""Adapters of models: what a handler may yield is what comes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import providers
from django_streams.providers import openai, scripted
from django_streams.turns import source


@given(st.text(alphabet="ab \n\t*", max_size=40))
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    assert "".join(scripted.words(text)) == text


async def test_the_scripted_model_says_its_text_word_by_word() -> None:
    said = [word async for word in scripted.scripted("one two\n\n- three", pause=0)]
    assert said == ["one", " two", "\n\n-", " three"]


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


class Server:
    """Speaks like OpenAI: each line of *lines* is one event of the stream."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines
        self.asked = b""
        self.left = asyncio.Event()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        self.asked = await reader.readexactly(length)
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Connection: close\r\n\r\n"
        )
        for line in self._lines:
            writer.write(f"data: {line}\n\n".encode())
        if self._lines[-1] == "[DONE]":
            writer.close()
        else:
            await reader.read()
            writer.close()
        await writer.wait_closed()
        self.left.set()


def event(**delta: Any) -> str:
    import json

    return json.dumps(
        {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
        }
    )


async def ask(url: str) -> Any:
    client = openai.client(base_url=url, api_key="k", max_retries=0)
    return await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    )


async def test_a_stream_of_a_chat_completion_may_be_returned_as_it_is() -> None:
    server = Server(
        event(role="assistant", content=""),
        event(reasoning_content="h"),
        event(reasoning_content="m"),
        event(content="Hel"),
        event(content="lo"),
        '{"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
        '"choices":[]}',
        "[DONE]",
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
    assert b'"stream":true' in server.asked


async def test_leaving_the_reply_hangs_up_on_the_model() -> None:
    server = Server(event(content="Hel"))
    async with server as url:
        found = source.items(await ask(url))
        assert await anext(found) == "Hel"
        await found.aclose()
        async with asyncio.timeout(5):
            await server.left.wait()


async def plain() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize("result", ["a", {"type": "x"}, [], plain(), 7, None])
def test_nothing_else_is_taken_for_a_model(result: Any) -> None:
    assert providers.adapt(result) is None
