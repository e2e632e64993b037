"""Runs of agents of pydantic-ai, from version 1.0 on."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

from .calls import Call
from .pydantic_ai_messages import KEPT, PROVIDER, to_messages

__all__ = ["items", "to_messages"]

Item = str | dict[str, Any]


async def items(run: Any) -> AsyncGenerator[Item, None]:
    """What a run says: text as strings; thoughts, tool calls with what came of
    them, and the steps between the requests to the model as chunks.

    *run* is what ``agent.run_stream_events()`` or ``agent.run_stream()`` returns,
    entered or not, an iterator of the same events, or a finished
    ``AgentRunResult``. The tools are run by pydantic-ai. Closing it ends the run.
    Raises ``TypeError`` for anything else.
    """
    if not hasattr(run, "__aenter__"):
        async with aclosing(_said(run)) as said:
            async for item in said:
                yield item
        return
    async with run as entered, aclosing(_said(entered)) as said:
        async for item in said:
            yield item


def _said(run: Any) -> AsyncGenerator[Item, None]:
    if hasattr(run, "__aiter__"):
        return _events(run)
    if hasattr(run, "get_output"):
        return _streamed(run)
    if hasattr(run, "output"):
        return _finished(run)
    raise TypeError(f"a run of an agent is needed; got {type(run).__name__}")


async def _finished(run: Any) -> AsyncGenerator[Item, None]:
    yield _as_text(run.output)


async def _events(run: AsyncIterator[Any]) -> AsyncGenerator[Item, None]:
    reply = _Reply()
    try:
        async for event in run:
            for item in reply.take(event):
                yield item
        for item in reply.end():
            yield item
    finally:
        if hasattr(run, "aclose"):
            await run.aclose()


async def _streamed(run: Any) -> AsyncGenerator[Item, None]:
    from pydantic_ai.exceptions import UserError

    said = False
    try:
        async with aclosing(run.stream_text(delta=True, debounce_by=None)) as texts:
            async for text in texts:
                said = True
                yield text
    except UserError:
        # The output is no text.
        if said:
            raise
        yield _as_text(await run.get_output())


class _Reply:
    def __init__(self) -> None:
        self._in_step = False
        # The index of the last part: each request begins anew.
        self._last = -1
        self._thought: tuple[int, _Thought] | None = None
        # Calls that are being written, by the part's index.
        self._calls: dict[int, Call] = {}
        # Their ids, which may repeat, to ours; those that wait for an outcome.
        self._ids: dict[str, str] = {}
        self._open: set[str] = set()
        self._final: str | None = None

    def take(self, event: Any) -> Iterator[Item]:
        if isinstance(event, str):
            yield event
            return
        match getattr(event, "event_kind", None):
            case "part_start":
                yield from self._begin(event.index, event.part)
            case "part_delta":
                yield from self._write(event.index, event.delta)
            case "part_end":
                if self._thought and self._thought[0] == event.index:
                    self._thought[1].keep(event.part)
                    yield from self._end_thought()
            case "final_result":
                self._final = event.tool_call_id
            case "function_tool_call" | "output_tool_call":
                yield from self._end_parts()
            case "function_tool_result" | "output_tool_result":
                yield from self._end_parts()
                # It has had two names.
                part = getattr(event, "part", None) or event.result
                yield self._outcome(part, provided=False)
            case "agent_run_result":
                yield from self._finish(event.result.output)
            case None:
                raise TypeError(
                    f"events of a run are needed; got {type(event).__name__}"
                )

    def end(self) -> Iterator[Item]:
        yield from self._end_parts()
        if self._in_step:
            yield {"type": "finish-step"}
        self._in_step = False

    def _begin(self, index: int, part: Any) -> Iterator[Item]:
        if not self._in_step or index <= self._last:
            yield from self.end()
            self._in_step, self._final = True, None
            yield {"type": "start-step"}
        self._last = index
        yield from self._end_thought()
        match part.part_kind:
            case "text" if part.content:
                yield part.content
            case "thinking":
                thought = _Thought(f"reasoning-{index}")
                self._thought = (index, thought)
                yield from thought.begin(part)
            case "tool-call" | "builtin-tool-call":
                # Provided, so that nobody else runs it.
                call = self._calls[index] = Call(provided=True)
                self._ids[part.tool_call_id] = call.call_id
                self._open.add(call.call_id)
                yield from call.take(part.tool_name, _arguments(part.args))
            case "builtin-tool-return":
                yield from self._end_calls()
                yield self._outcome(part, provided=True)
            case "file":
                data = base64.b64encode(part.content.data).decode()
                kind = part.content.media_type
                url = f"data:{kind};base64,{data}"
                yield {"type": "file", "mediaType": kind, "url": url}

    def _write(self, index: int, delta: Any) -> Iterator[Item]:
        match delta.part_delta_kind:
            case "text" if delta.content_delta:
                yield delta.content_delta
            case "thinking" if self._thought and self._thought[0] == index:
                yield from self._thought[1].write(delta)
            case "tool_call" if index in self._calls:
                yield from self._calls[index].take(None, _arguments(delta.args_delta))

    def _end_parts(self) -> Iterator[Item]:
        yield from self._end_thought()
        yield from self._end_calls()

    def _end_thought(self) -> Iterator[Item]:
        if self._thought is not None:
            yield self._thought[1].end()
            self._thought = None

    def _end_calls(self) -> Iterator[Item]:
        calls, self._calls = self._calls, {}
        for call in calls.values():
            yield from call.end()

    def _outcome(self, part: Any, *, provided: bool) -> Item:
        # One that was made before the run has the id it was told with.
        call_id = self._ids.get(part.tool_call_id, part.tool_call_id)
        self._open.discard(call_id)
        # What came of it is kept whole, as with any tool that runs here.
        of = {"toolCallId": call_id, "providerExecuted": provided}
        failed = (
            part.part_kind == "retry-prompt"
            or getattr(part, "outcome", "success") != "success"
        )
        if failed:
            error = _as_text(part.content)
            return {"type": "tool-output-error", "errorText": error, **of}
        output = _plain(part.content)
        return {"type": "tool-output-available", "output": output, **of}

    def _finish(self, output: Any) -> Iterator[Item]:
        yield from self._end_parts()
        if self._final is None:
            return
        call_id = self._ids.get(self._final, "")
        if call_id in self._open:
            self._open.discard(call_id)
            of = {"toolCallId": call_id, "providerExecuted": False}
            done = "Final result processed."
            yield {"type": "tool-output-available", "output": done, **of}
        if isinstance(output, str):
            yield output


class _Thought:
    def __init__(self, part_id: str) -> None:
        self._id = part_id
        self._kept: dict[str, Any] = {}

    def begin(self, part: Any) -> Iterator[Item]:
        self.keep(part)
        yield {"type": "reasoning-start", "id": self._id}
        if part.content:
            yield self._delta(part.content)

    def write(self, delta: Any) -> Iterator[Item]:
        if delta.signature_delta:
            self._kept["signature"] = delta.signature_delta
        if name := getattr(delta, "provider_name", None):
            self._kept["provider_name"] = name
        if delta.content_delta:
            yield self._delta(delta.content_delta)

    def keep(self, part: Any) -> None:
        for key in KEPT:
            if (value := getattr(part, key, None)) is not None:
                self._kept[key] = _plain(value)

    def end(self) -> Item:
        kept = {"providerMetadata": {PROVIDER: self._kept}} if self._kept else {}
        return {"type": "reasoning-end", "id": self._id, **kept}

    def _delta(self, text: str) -> Item:
        return {"type": "reasoning-delta", "id": self._id, "delta": text}


def _arguments(args: Any) -> str:
    if isinstance(args, str):
        return args
    return json.dumps(_plain(args)) if args else ""


def _as_text(output: Any) -> str:
    if isinstance(output, str):
        return output
    return json.dumps(_plain(output), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """*value* as JSON values; what has no form in JSON becomes its text."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(
        value, fallback=str, inf_nan_mode="strings", bytes_mode="base64"
    )
