"""The tools of an agent in the hands of one turn: it runs what a model calls.

A call is known by its id and lives in the reply, with its input and, once it is
over, its result. So an attempt that goes on with a stored reply finds the results
there, and runs no tool again that has one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from .. import codec, conf, ids
from ..failures import public_reason
from ..messages.parts import Part, tool_name, tool_parts, truthy
from ..messages.repair import INTERRUPTED_TEXT
from ..messages.steps import Result, result_of
from ..tools import Tool, ToolArgumentError, ToolSet, to_json
from .reply import Reply, Stopped

logger = logging.getLogger("django_streams.turns")

Chunk = dict[str, Any]

CUT_TEXT = "The turn was stopped while this ran; what it did is not known."

_making: ContextVar[frozenset[str]] = ContextVar("making", default=frozenset())
"""The calls in whose tools the current code runs."""


class Toolbox:
    """Of one run. *emit* says a chunk of the reply, *flush* stores what was said,
    inside of *alive* the handler is not taken for stuck."""

    def __init__(
        self,
        tools: ToolSet,
        reply: Reply,
        *,
        turn: Any,
        emit: Callable[[Chunk], Awaitable[None]],
        flush: Callable[[], Awaitable[None]],
        alive: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._tools = tools
        self._reply = reply
        self._turn = turn
        self._emit = emit
        self._flush = flush
        self._alive = alive
        self._cut: list[str] = []
        # While a call is being made others of its id wait for what comes of it.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = (
            weakref.WeakValueDictionary()
        )

    async def answer(self, item: Any) -> None:
        """Run the call that *item*, which was said, makes of one of the tools."""
        if isinstance(item, dict) and item.get("type") == "tool-input-available":
            await self._settle(item.get("toolCallId"))

    async def call(
        self, name: str, arguments: Mapping[str, Any], call_id: str | None
    ) -> Result | None:
        """See :meth:`.turn.Turn.call`."""
        if name not in self._tools:
            known = ", ".join(one.name for one in self._tools) or "none"
            raise ValueError(f"the agent has no tool named {name!r}; it has {known}")
        call_id = call_id or ids.new_id("call_")
        if call_id in _making.get():
            raise ValueError(
                f"the call {call_id!r} is being made: it would wait for itself; a "
                "tool makes calls under other ids than its own"
            )
        await self._emit(
            {
                "type": "tool-input-available",
                "toolCallId": call_id,
                "toolName": name,
                "input": dict(arguments),
            }
        )
        await self._settle(call_id)
        return self.result(call_id)

    def result(self, call_id: str) -> Result | None:
        """What came of a call of the reply; None while nothing has."""
        part = self._find(call_id)
        return None if part is None else result_of(part)

    async def run_allowed(self) -> bool:
        """Run the calls that somebody has allowed; whether there were any."""
        reply = self._reply.message or {}
        earlier = [one for one in self._turn.messages if one["id"] != reply.get("id")]
        allowed = [
            part["toolCallId"]
            for message in (*earlier, reply)
            for part in tool_parts(message)
            if _is_allowed(part) and self._tool_of(part) is not None
        ]
        for call_id in allowed:
            await self._settle(call_id)
        return bool(allowed)

    async def end_open(self) -> None:
        """End the calls that were cut short and that nobody has made again."""
        for part in list(tool_parts(self._reply.message or {})):
            waits = part.get("state") == "input-available"
            if waits and self._tool_of(part) is not None:
                await self._emit(_failure(part["toolCallId"], INTERRUPTED_TEXT))

    def cut_short(self) -> list[Chunk]:
        """How the calls end that were being made when the turn was stopped: else
        somebody would be told that they did not run, or they would run again."""
        return [_failure(call_id, CUT_TEXT) for call_id in self._cut]

    def _find(self, call_id: str) -> Part | None:
        """The newest call of that id, of the reply or of an earlier message."""
        part = self._reply.call(call_id)
        if part is not None:
            return part
        for message in reversed(self._turn.messages):
            for part in tool_parts(message):
                if part["toolCallId"] == call_id:
                    return part
        return None

    def _tool_of(self, part: Part) -> Tool[..., Any] | None:
        # What the provider runs itself brings its result along.
        if truthy(part.get("providerExecuted")):
            return None
        return self._tools.get(tool_name(part))

    async def _settle(self, call_id: Any) -> None:
        """Run a call that waits for it, or ask whether it may run."""
        if not isinstance(call_id, str):
            return
        lock = self._locks.get(call_id)
        if lock is None:
            lock = self._locks[call_id] = asyncio.Lock()
        async with lock:
            await self._settle_alone(call_id)

    async def _settle_alone(self, call_id: str) -> None:
        part = self._find(call_id)
        tool = None if part is None else self._tool_of(part)
        if part is None or tool is None:
            return
        allowed = _is_allowed(part)
        if not allowed and part.get("state") != "input-available":
            return
        given = part.get("input")
        with self._alive():
            # A run that lost its turn finds out here, before the tool has effects.
            await self._flush()
            try:
                chunk = await self._outcome(tool, call_id, given, allowed)
            except asyncio.CancelledError:
                self._cut.append(call_id)
                raise
        await self._emit(chunk)
        await self._flush()

    async def _outcome(
        self, tool: Tool[..., Any], call_id: str, given: Any, allowed: bool
    ) -> Chunk:
        making = _making.set(_making.get() | {call_id})
        try:
            arguments = tool.arguments(given, turn=self._turn)
            if not allowed and await _needs_approval(tool, arguments):
                return {
                    "type": "tool-approval-request",
                    "approvalId": ids.new_id("approval_"),
                    "toolCallId": call_id,
                }
            output = to_json(await _run(tool.function, **arguments))
            chunk = {
                "type": "tool-output-available",
                "toolCallId": call_id,
                "output": output,
            }
            # What cannot be stored is a fault of the tool, not of the turn.
            codec.encode(chunk, what=f"the output of the tool {tool.name}")
        except Stopped:
            # It was making a call itself: the turn's end, and no fault of the tool.
            raise
        except ToolArgumentError as error:
            return _failure(call_id, str(error))
        except Exception as error:
            doing = f"tool {tool.name} of turn {self._turn.request_id!r}"
            return _failure(call_id, public_reason(error, doing))
        finally:
            _making.reset(making)
        return chunk


def _is_allowed(part: Part) -> bool:
    approval = part.get("approval")
    return (
        part.get("state") == "approval-responded"
        and isinstance(approval, dict)
        and approval.get("approved") is True
    )


def _failure(call_id: str, text: str) -> Chunk:
    return {"type": "tool-output-error", "toolCallId": call_id, "errorText": text}


async def _needs_approval(tool: Tool[..., Any], arguments: dict[str, Any]) -> bool:
    if not callable(tool.needs_approval):
        return tool.needs_approval
    if inspect.iscoroutinefunction(tool.needs_approval):
        asked = tool.approval_for(arguments)
    else:
        asked = await _in_thread(lambda: tool.approval_for(arguments))
    return bool(await asked if inspect.isawaitable(asked) else asked)


async def _run(function: Callable[..., Any], **arguments: Any) -> Any:
    """Cancelled: a plain function still runs to its end in its thread."""
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    result = await _in_thread(lambda: function(**arguments))
    return await result if inspect.isawaitable(result) else result


async def _in_thread(work: Callable[[], Any]) -> Any:
    # Not the pool of the library's own queries, which a slow tool would hold up,
    # and which may try again what must happen once.
    if conf.get().SINGLE_CONNECTION:
        return await sync_to_async(work, thread_sensitive=True)()
    return await asyncio.to_thread(_with_fresh_connections, work)


def _with_fresh_connections(work: Callable[[], Any]) -> Any:
    close_old_connections()
    try:
        return work()
    finally:
        close_old_connections()
