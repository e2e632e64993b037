"""A model that is asked again with the results of the tools it has called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

from ..messages.accumulator import Accumulator
from ..messages.grammar import Grammar
from ..messages.parts import UIMessage, is_tool

Item: TypeAlias = str | dict[str, Any]
Said: TypeAlias = AsyncGenerator[Item, None]


async def rounds(
    turn: Any,
    ask: Callable[[list[UIMessage], bool], Awaitable[Said]],
    *,
    names: Collection[Any],
    before: Sequence[UIMessage] | None = None,
    unfinished: Callable[[], bool] = bool,
) -> Said:
    """What a model says in answer to *turn*, until it calls no more tools.

    *ask* is given the messages so far, and whether the model may no more call any
    of its tools, whose *names* it knows; what it returns are the items of one
    completion. *before* is what it is told first, by default the turn's messages.
    *unfinished* says of the last one that the model wants to go on
    though it called nothing of ours.
    """
    before = list(turn.messages if before is None else before)
    reply = _Reply()
    for step in range(1, turn.max_tool_steps + 1):
        last = step == turn.max_tool_steps
        said = await ask([*before, *reply.told(turn)], last)
        calls: list[str] = []
        yield reply.took({"type": "start-step"})
        async with aclosing(said):
            async for item in said:
                if last and _is_call(item) and not reply.is_provided(item):
                    continue
                yield reply.took(item)
                if isinstance(item, str) or item["type"] not in _CALLED:
                    continue
                if reply.is_provided(item):
                    continue
                calls.append(item["toolCallId"])
                if item["toolName"] not in names:
                    yield reply.took(_unknown(item, names))
        yield reply.took({"type": "finish-step"})
        if any(turn.result(call_id) is None for call_id in calls):
            return
        if not calls and not unfinished():
            return


# How a call begins to have a result.
_CALLED = ("tool-input-available", "tool-input-error")


class _Reply:
    """What the model has said, as the message which it is told of it by."""

    def __init__(self) -> None:
        self._grammar = Grammar("reply", text_id="said")
        self._message = Accumulator("reply")
        self._provided: set[str] = set()

    def took(self, item: Item) -> Item:
        if isinstance(item, str):
            chunks = self._grammar.text(item)
        else:
            chunks = self._grammar.chunk(item)
        for chunk in chunks:
            self._message.apply(chunk)
        return item

    def is_provided(self, item: Item) -> bool:
        """Whether it is about a call that the provider itself runs."""
        if isinstance(item, str) or not isinstance(item.get("toolCallId"), str):
            return False
        if item.get("providerExecuted"):
            self._provided.add(item["toolCallId"])
        return item["toolCallId"] in self._provided

    def told(self, turn: Any) -> list[UIMessage]:
        if self._message.empty:
            return []
        message = self._message.message
        parts = []
        for part in message["parts"]:
            if is_tool(part) and part["toolCallId"] not in self._provided:
                result = turn.result(part["toolCallId"])
                part = part if result is None else result.part
            parts.append(part)
        return [message | {"parts": parts}]


def _is_call(item: Item) -> bool:
    return not isinstance(item, str) and item["type"].startswith("tool-")


def _unknown(call: dict[str, Any], names: Collection[Any]) -> dict[str, Any]:
    known = ", ".join(sorted(map(str, names))) or "none"
    error = f"There is no tool named {call['toolName']}; there is {known}."
    kind = {"type": "tool-output-error", "toolCallId": call["toolCallId"]}
    return kind | {"errorText": error}


def theirs(turn: Any) -> list[dict[str, Any]]:
    """The client's tools that are none of the agent's."""
    return [
        one
        for one in turn.client_tools or ()
        if isinstance(one, dict)
        and isinstance(one.get("name"), str)
        and one["name"] not in turn.tools
    ]
