"""The tool calls of one message: how chunks move a call from state to state."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Chunk: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, Any]

SETTLED = frozenset(("output-available", "output-error", "output-denied"))
"""States in which a call is over; the first one wins."""

_ANSWERED = SETTLED | {"approval-responded"}
_AFTER_INPUT = _ANSWERED | {"approval-requested", "input-available"}


class ToolCalls:
    """Applies ``tool-*`` chunks to the tool parts in *parts*."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self._calls: dict[str, Part] = {}
        for part in parts:
            call_id = part.get("toolCallId")
            if isinstance(call_id, str):
                self._calls[call_id] = part
        # Raw input text of calls whose input is still being written. A partial
        # text never gets into ``input``: whoever reads the row would take it
        # for what the model meant.
        self._raw: dict[str, list[str]] = {}

    def is_repeat(self, chunk: Chunk) -> bool:
        """Whether *chunk* would set a call back that has gone further."""
        kind = chunk.get("type")
        call = self._call(chunk)
        if call is None:
            return False
        state = call.get("state")
        if kind == "tool-input-start":
            return True
        if kind in ("tool-input-delta", "tool-input-available"):
            return state in _AFTER_INPUT
        if kind in ("tool-output-denied", "tool-approval-request"):
            return state in _ANSWERED
        return False

    def apply(self, kind: str, chunk: Chunk) -> None:
        call_id = chunk.get("toolCallId")
        if not isinstance(call_id, str) or not call_id:
            return
        match kind:
            case "tool-input-start":
                if call_id not in self._calls:
                    self._add(call_id, chunk, "input-streaming")
            case "tool-input-delta":
                text = chunk.get("inputTextDelta")
                if isinstance(text, str):
                    self._raw.setdefault(call_id, []).append(text)
            case "tool-input-available":
                self._input(call_id, chunk)
            case "tool-input-error":
                self._input_error(call_id, chunk)
            case "tool-approval-request":
                self._approval(call_id, chunk)
            case "tool-output-available":
                if call := self._calls.get(call_id):
                    call["state"] = "output-available"
                    call["output"] = chunk.get("output")
                    # Absent on the last output of a call that sent several.
                    call.pop("preliminary", None)
                    _copy(chunk, call, "preliminary", "providerExecuted")
            case "tool-output-error":
                if call := self._calls.get(call_id):
                    call["state"] = "output-error"
                    call["errorText"] = str(chunk.get("errorText", ""))
            case "tool-output-denied":
                call = self._calls.get(call_id)
                if call and call.get("state") not in _ANSWERED:
                    call["state"] = "output-denied"

    def _call(self, chunk: Chunk) -> Part | None:
        call_id = chunk.get("toolCallId")
        return self._calls.get(call_id) if isinstance(call_id, str) else None

    def _add(self, call_id: str, chunk: Chunk, state: str) -> Part:
        name = str(chunk.get("toolName", ""))
        dynamic = chunk.get("dynamic") is True
        call: Part = {
            "type": "dynamic-tool" if dynamic else f"tool-{name}",
            "toolName": name,
            "toolCallId": call_id,
            "state": state,
        }
        _copy(chunk, call, "providerExecuted", "title")
        if isinstance(chunk.get("providerMetadata"), dict):
            call["callProviderMetadata"] = chunk["providerMetadata"]
        self._calls[call_id] = call
        self._parts.append(call)
        return call

    def _input(self, call_id: str, chunk: Chunk) -> None:
        call = self._calls.get(call_id)
        if call is None:
            call = self._add(call_id, chunk, "input-available")
        elif call.get("state") != "input-streaming":
            return
        call["state"] = "input-available"
        call["input"] = as_object(chunk.get("input"))
        self._raw.pop(call_id, None)
        _copy(chunk, call, "providerExecuted", "title")
        if isinstance(chunk.get("providerMetadata"), dict):
            call["callProviderMetadata"] = chunk["providerMetadata"]

    def _input_error(self, call_id: str, chunk: Chunk) -> None:
        call = self._calls.get(call_id)
        if call is None:
            call = self._add(call_id, chunk, "output-error")
        elif call.get("state") in SETTLED:
            return
        call["state"] = "output-error"
        call["errorText"] = str(chunk.get("errorText", ""))
        if "input" in chunk:
            call["input"] = as_object(chunk["input"])

    def _approval(self, call_id: str, chunk: Chunk) -> None:
        call = self._calls.get(call_id)
        if call is None or call.get("state") in _ANSWERED:
            return
        call["state"] = "approval-requested"
        call["approval"] = {"id": chunk.get("approvalId")}
        if "approvalDescriptor" in chunk:
            call["approval"]["descriptor"] = chunk["approvalDescriptor"]
        if "input" not in call:
            call["input"] = as_object("".join(self._raw.pop(call_id, ())))


def as_object(value: object) -> dict[str, Any]:
    """A tool input as the JSON object it must be; ``{}`` for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _copy(chunk: Chunk, part: Part, *keys: str) -> None:
    for key in keys:
        if chunk.get(key) is not None:
            part[key] = chunk[key]
