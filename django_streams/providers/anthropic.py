"""The Messages API of Anthropic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from ..messages.parts import UIMessage
from .anthropic_messages import (
    PROVIDER,
    system_of,
    to_messages,
)
from .calls import Call
from .events import events
from .rounds import Said, rounds, theirs

__all__ = ["answer", "client", "items", "to_messages"]

Item = str | dict[str, Any]


def client(**options: Any) -> Any:
    """An ``AsyncAnthropic`` client; address and key come from the environment."""
    try:
        from anthropic import AsyncAnthropic
    except ImportError as error:
        raise ImportError(
            "this needs the anthropic package: pip install 'django-streams[anthropic]'"
        ) from error
    return AsyncAnthropic(**options)


_default_client = client

GO_ON = (
    "Your reply was interrupted there. Go on with it exactly where it ends: repeat "
    "nothing of it, and do not mention the interruption."
)
"""What the model is told behind a reply that it is to go on with."""


async def items(stream: Any) -> AsyncGenerator[Item, None]:
    """What a stream of the Messages API says: its text as strings; thoughts, tool
    calls, also those that the provider runs, and the sources of citations as chunks.

    *stream* is what ``messages.create(stream=True)`` or ``messages.stream()``
    returns, also of the blocking client, whose stream is read in a thread.
    Closing it closes the stream.
    """
    async with aclosing(_Reply().items(stream)) as said:
        async for item in said:
            yield item


class _Reply:
    """One reply as it is being written; its blocks come one after another."""

    def __init__(self) -> None:
        self.paused = False
        """Whether the provider has stopped in the middle of its own tools, and
        goes on when it is asked again."""
        self._thought: _Thought | None = None
        self._call: Call | None = None
        # The arguments that a call began with: mostly none, they follow.
        self._given: Any = None
        # Address to title, and those of which the reader has been told.
        self._sources: dict[str, str | None] = {}
        self._cited: set[str] = set()

    async def items(self, stream: Any) -> AsyncGenerator[Item, None]:
        async with aclosing(events(stream)) as told:
            async for event in told:
                for item in self._take(event):
                    yield item
        for item in (*self._end(), *self._cite()):
            yield item

    def _take(self, event: Any) -> Iterator[Item]:
        # Events that messages.stream() adds to those of the provider say the same.
        match event.type:
            case "content_block_start":
                yield from self._begin(event.index, event.content_block)
            case "content_block_delta":
                yield from self._write(event.delta)
            case "content_block_stop":
                yield from self._end()
            case "message_delta":
                self.paused = event.delta.stop_reason == "pause_turn"

    def _begin(self, index: int, block: Any) -> Iterator[Item]:
        kind = str(block.type)
        if kind == "text":
            for citation in getattr(block, "citations", None) or ():
                self._note(citation)
            if block.text:
                yield block.text
            return
        # Not in the middle of a text, which is one across the blocks it comes in.
        yield from self._cite()
        if kind in ("thinking", "redacted_thinking"):
            self._thought = _Thought(f"reasoning-{index}", block)
            yield from self._thought.begin()
        elif kind.endswith("tool_use"):
            yield from self._begin_call(kind, block)
        elif kind.endswith("tool_result"):
            yield _outcome(block.to_dict(mode="json"))

    def _begin_call(self, kind: str, block: Any) -> Iterator[Item]:
        if kind == "tool_use":
            self._call = Call()
        else:
            # The provider takes its own calls back under their ids only.
            kept = {PROVIDER: {"type": kind}}
            self._call = Call(block.id, provided=True, metadata=kept)
        self._given = block.input or None
        yield from self._call.take(block.name, None)

    def _write(self, delta: Any) -> Iterator[Item]:
        match delta.type:
            case "text_delta" if delta.text:
                yield delta.text
            case "citations_delta":
                self._note(delta.citation)
            case "thinking_delta" if self._thought and delta.thinking:
                yield self._thought.delta(delta.thinking)
            case "signature_delta" if self._thought:
                self._thought.signature += delta.signature
            case "input_json_delta" if self._call:
                yield from self._call.take(None, delta.partial_json)

    def _end(self) -> Iterator[Item]:
        if self._thought is not None:
            yield self._thought.end()
        if self._call is not None:
            yield from self._call.end(self._given)
        self._thought = self._call = self._given = None

    def _note(self, citation: Any) -> None:
        # A client that is older than the kind of citation leaves it as it came.
        told = citation if isinstance(citation, dict) else vars(citation)
        url = told.get("url") or told.get("source")
        if isinstance(url, str) and url.startswith(("http://", "https://")):
            self._sources.setdefault(url, told.get("title"))

    def _cite(self) -> Iterator[Item]:
        for url, title in self._sources.items():
            if url in self._cited:
                continue
            self._cited.add(url)
            source = {"type": "source-url", "sourceId": url, "url": url}
            yield source | ({"title": title} if title else {})


class _Thought:
    def __init__(self, part_id: str, block: Any) -> None:
        self._id = part_id
        self._said = getattr(block, "thinking", None)
        self.signature: str = getattr(block, "signature", None) or ""
        self._redacted = getattr(block, "data", None)

    def begin(self) -> Iterator[Item]:
        yield {"type": "reasoning-start", "id": self._id}
        if self._said:
            yield self.delta(self._said)

    def delta(self, text: str) -> Item:
        return {"type": "reasoning-delta", "id": self._id, "delta": text}

    def end(self) -> Item:
        kept = {"signature": self.signature} if self.signature else {}
        if self._redacted:
            kept["redactedData"] = self._redacted
        metadata = {"providerMetadata": {PROVIDER: kept}} if kept else {}
        return {"type": "reasoning-end", "id": self._id, **metadata}


def _outcome(block: dict[str, Any]) -> Item:
    """What came of a call that the provider has run."""
    content = block.get("content")
    of = {"toolCallId": block["tool_use_id"], "providerExecuted": True}
    if isinstance(content, dict) and str(content.get("type")).endswith("_error"):
        error = str(content.get("error_code"))
    elif block.get("is_error"):
        told = content if isinstance(content, list) else [{"text": content}]
        error = "".join(str(one.get("text") or "") for one in told)
    else:
        return {"type": "tool-output-available", "output": content, **of}
    return {"type": "tool-output-error", "errorText": error, **of}


async def answer(
    turn: Any,
    *,
    model: str,
    max_tokens: int = 4096,
    system: str | None = None,
    client: Any = None,
    **options: Any,
) -> AsyncGenerator[Item, None]:
    """A handler's answer to *turn* by a model that may use tools.

    The model is told of the agent's tools and of those of the client. What it
    calls of the agent's is run, and it is asked again with the results and its own
    thoughts, until it calls none, or one for which the client or a person is
    needed, at most ``turn.max_tool_steps`` times; the last time it may not call any.
    A reply that was interrupted it is asked to go on with.
    *max_tokens* is the limit of each of these replies. *client* is an
    ``AsyncAnthropic`` client, by default :func:`client`; *options* go along with
    each request, and ``tools`` among them, such as the provider's own, are told
    beside the agent's.
    """
    asked = _default_client() if client is None else client
    tools = [_tool(one) for one in (*turn.tools.schemas, *theirs(turn))]
    names = {one["name"] for one in tools}
    tools += options.pop("tools", ())
    reply = _Reply()

    async def ask(messages: list[UIMessage], last: bool) -> Said:
        nonlocal reply
        reply = _Reply()
        told: dict[str, Any] = {"tools": tools} if tools else {}
        if tools and last:
            told["tool_choice"] = {"type": "none"}
        if texts := [*([system] if system else ()), *system_of(messages)]:
            told["system"] = "\n\n".join(texts)
        stream = await asked.messages.create(
            **{"model": model, "max_tokens": max_tokens} | options | told,
            messages=to_messages(messages),
            stream=True,
        )
        return reply.items(stream)

    answered = rounds(
        turn,
        ask,
        names=names,
        before=_asking(turn.messages),
        unfinished=lambda: reply.paused,
    )
    async with aclosing(answered) as said:
        async for item in said:
            yield item


def _asking(messages: list[UIMessage]) -> list[UIMessage]:
    """The messages, of which the user has the last one: newer models do not go on
    with a reply that is the last."""
    told = to_messages(messages)
    if not told or told[-1]["role"] == "user":
        return messages
    return [*messages, {"role": "user", "parts": [{"type": "text", "text": GO_ON}]}]


def _tool(schema: dict[str, Any]) -> dict[str, Any]:
    told = {"name": schema.get("name"), "input_schema": schema.get("parameters")}
    told["input_schema"] = told["input_schema"] or {"type": "object"}
    description = schema.get("description")
    return told | ({"description": description} if description else {})
