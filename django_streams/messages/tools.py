"""The tool calls of one message: how chunks move a call from state to state."""

from __future__ import annotations

from .parts import (
    SETTLED,
    Chunk,
    Part,
    as_object,
    copy_known,
    is_tool,
    tool_name,
    truthy,
)

# A call in one of these states has got its input.
_AWAITING_APPROVAL = frozenset(("approval-requested", "approval-responded"))

# Chunks that may be a call's first, and those that only a known call can have.
_BEGINNINGS = frozenset(
    ("tool-input-start", "tool-input-available", "tool-input-error")
)
_LATER = frozenset(
    (
        "tool-input-delta",
        "tool-approval-request",
        "tool-output-available",
        "tool-output-error",
        "tool-output-denied",
    )
)

# What belongs to a state and goes when the call leaves it.
_RESULT_KEYS = ("output", "errorText", "preliminary")

# Members of an approval request, and what they are called in the part.
_REQUEST_KEYS = {
    "approvalDescriptor": "descriptor",
    "inputSchemaInput": "inputSchemaInput",
    "reason": "requestReason",
    "isAutomatic": "isAutomatic",
    "signature": "signature",
}
_NOT_AUTOMATIC = ("isAutomatic", False)


class ToolCalls:
    """Applies ``tool-*`` chunks to the tool parts in *parts*."""

    def __init__(self, parts: list[Part]) -> None:
        self._parts = parts
        self._calls: dict[str, Part] = {}
        # Raw input text of calls whose input is still being written. A partial
        # text never gets into ``input``: whoever reads the row would take it
        # for what the model meant.
        self._raw: dict[str, list[str]] = {}
        # Calls whose input was put together from that text, not given.
        self._provisional: set[str] = set()
        self.reread()

    def reread(self) -> None:
        """Take note that parts were removed from the list."""
        self._calls = {
            part["toolCallId"]: part
            for part in self._parts
            if is_tool(part) and isinstance(part.get("toolCallId"), str)
        }
        for known in (self._raw.keys(), self._provisional):
            for call_id in [call_id for call_id in known if call_id not in self._calls]:
                self._raw.pop(call_id, None)
                self._provisional.discard(call_id)

    def call(self, call_id: object) -> Part | None:
        """The newest call of that id."""
        return self._calls.get(call_id) if isinstance(call_id, str) else None

    def forwarded(self, chunk: Chunk) -> list[Chunk]:
        """What is stored and shown for *chunk*: see ``Accumulator.forwarded``."""
        kind = chunk.get("type")
        if kind == "tool-approval-response":
            call = self._asked(chunk)
            return [] if call is None or call.get("state") in SETTLED else [chunk]
        if kind in _BEGINNINGS:
            return self._forwarded_input(chunk)
        if kind not in _LATER:
            return [chunk]
        call = self._call(chunk)
        if call is None:
            # The reducer throws on a call that it has not seen begin.
            return []
        state = call.get("state")
        match kind:
            case "tool-input-delta":
                text = isinstance(chunk.get("inputTextDelta"), str)
                return [chunk] if text and state == "input-streaming" else []
            case "tool-approval-request":
                over = state in SETTLED or state == "approval-responded"
                return [] if over else [chunk]
            case "tool-output-denied":
                return [] if _undeniable(call) else [chunk]
        return [chunk]

    def _forwarded_input(self, chunk: Chunk) -> list[Chunk]:
        """For the chunks that may begin a call."""
        call = self._call(chunk)
        if call is None:
            return [chunk] if _begins(chunk) else []
        state, kind = call.get("state"), chunk["type"]
        chunk = _agreeing(chunk, call)
        if kind == "tool-input-error":
            return [] if state in SETTLED else [chunk]
        if kind == "tool-input-available" and state == "input-streaming":
            return [chunk]
        if kind == "tool-input-available" and state == "approval-requested":
            return [chunk, _request_of(call)] if self._wants_input(call) else []
        return []

    def apply(self, kind: str, chunk: Chunk) -> None:
        """Take one chunk whose type is *kind*."""
        if kind == "tool-approval-response":
            self._response(chunk)
            return
        call_id = chunk.get("toolCallId")
        if not isinstance(call_id, str) or not call_id:
            return
        call = self._calls.get(call_id)
        if call is None and not _begins(chunk):
            return
        match kind:
            case "tool-input-start" if call is None:
                self._add(call_id, chunk, "input-streaming")
            case "tool-input-delta":
                text = chunk.get("inputTextDelta")
                streaming = call is not None and call.get("state") == "input-streaming"
                if streaming and isinstance(text, str):
                    self._raw.setdefault(call_id, []).append(text)
            case "tool-input-available":
                self._input(call_id, chunk)
            case "tool-input-error":
                self._input_error(call_id, chunk)
            case _ if call is not None:
                self._answer(kind, call_id, call, chunk)

    def _answer(self, kind: str, call_id: str, call: Part, chunk: Chunk) -> None:
        match kind:
            case "tool-approval-request":
                self._request(call_id, call, chunk)
            case "tool-output-available":
                self._result(call_id, call, "output-available", chunk)
                call["output"] = chunk.get("output")
                copy_known(chunk, call, "preliminary")
            case "tool-output-error":
                self._result(call_id, call, "output-error", chunk)
                call["errorText"] = _text(chunk)
            case "tool-output-denied" if not _undeniable(call):
                self._fill(call_id, call)
                call["state"] = "output-denied"

    def _call(self, chunk: Chunk) -> Part | None:
        return self.call(chunk.get("toolCallId"))

    def _asked(self, chunk: Chunk) -> Part | None:
        """The call whose approval a response answers."""
        approval_id = chunk.get("approvalId")
        if not isinstance(approval_id, str):
            return None
        for call in self._calls.values():
            approval = call.get("approval")
            if isinstance(approval, dict) and approval.get("id") == approval_id:
                return call
        return None

    def _add(self, call_id: str, chunk: Chunk, state: str) -> Part:
        call: Part = {"toolCallId": call_id, "state": state}
        _name(call, chunk, dynamic=truthy(chunk.get("dynamic")))
        copy_known(chunk, call, "providerExecuted", "title", "toolMetadata")
        _metadata(chunk, call, "callProviderMetadata")
        self._calls[call_id] = call
        self._parts.append(call)
        return call

    def _input(self, call_id: str, chunk: Chunk) -> None:
        call = self._calls.get(call_id)
        if call is None:
            call = self._add(call_id, chunk, "input-available")
        elif call.get("state") == "input-streaming":
            call["state"] = "input-available"
            _name(call, chunk, dynamic=call.get("type") == "dynamic-tool")
        elif call.get("state") not in _AWAITING_APPROVAL or not self._wants_input(call):
            return
        call["input"] = as_object(chunk.get("input"))
        self._raw.pop(call_id, None)
        self._provisional.discard(call_id)
        copy_known(chunk, call, "providerExecuted", "title", "toolMetadata")
        _metadata(chunk, call, "callProviderMetadata")

    def _input_error(self, call_id: str, chunk: Chunk) -> None:
        call = self._calls.get(call_id)
        if call is None:
            call = self._add(call_id, {**chunk, "providerMetadata": None}, "")
        elif call.get("state") in SETTLED:
            return
        else:
            _name(call, chunk, dynamic=call.get("type") == "dynamic-tool")
        if "input" in chunk:
            call["input"] = as_object(chunk["input"])
        self._result(call_id, call, "output-error", chunk)
        call["errorText"] = _text(chunk)

    def _request(self, call_id: str, call: Part, chunk: Chunk) -> None:
        state = call.get("state")
        if state in SETTLED or state == "approval-responded":
            return
        self._fill(call_id, call)
        call["state"] = "approval-requested"
        approval = call["approval"] = {"id": chunk.get("approvalId")}
        for key, name in _REQUEST_KEYS.items():
            # A request that is not automatic does not say so.
            if chunk.get(key) is not None and (key, chunk[key]) != _NOT_AUTOMATIC:
                approval[name] = chunk[key]

    def _response(self, chunk: Chunk) -> None:
        call = self._asked(chunk)
        if call is None or call.get("state") in SETTLED:
            return
        call["state"] = "approval-responded"
        call["approval"] = call["approval"] | {"approved": chunk.get("approved")}
        copy_known(chunk, call["approval"], "reason")
        copy_known(chunk, call, "providerExecuted")
        _metadata(chunk, call, "callProviderMetadata")

    def _result(self, call_id: str, call: Part, state: str, chunk: Chunk) -> None:
        self._fill(call_id, call)
        call["state"] = state
        for key in _RESULT_KEYS:
            call.pop(key, None)
        copy_known(chunk, call, "providerExecuted", "toolMetadata")
        _metadata(chunk, call, "resultProviderMetadata")

    def _fill(self, call_id: str, call: Part) -> None:
        """Take the text that was streamed for the input that was never given."""
        raw = "".join(self._raw.pop(call_id, ()))
        if raw.strip() and "input" not in call:
            call["input"] = as_object(raw)
            self._provisional.add(call_id)

    def _wants_input(self, call: Part) -> bool:
        return "input" not in call or call["toolCallId"] in self._provisional


def _begins(chunk: Chunk) -> bool:
    """Whether a call can begin with *chunk*: it has an id and a tool."""
    names = (chunk.get("toolCallId"), chunk.get("toolName"))
    return chunk.get("type") in _BEGINNINGS and all(
        isinstance(name, str) and name for name in names
    )


def _agreeing(chunk: Chunk, call: Part) -> Chunk:
    """*chunk*, of the kind of tool that its call is: a client takes another kind,
    or none, for another call."""
    dynamic = call.get("type") == "dynamic-tool"
    named = isinstance(chunk.get("toolName"), str)
    if named and truthy(chunk.get("dynamic")) == dynamic:
        return chunk
    named_as = chunk["toolName"] if named else tool_name(call)
    return chunk | {"toolName": named_as, "dynamic": dynamic}


def _undeniable(call: Part) -> bool:
    """Whether a denial would set the call back: it is over, or was approved."""
    if call.get("state") != "approval-responded":
        return call.get("state") in SETTLED
    approval = call.get("approval")
    return not (isinstance(approval, dict) and approval.get("approved") is False)


def _request_of(call: Part) -> Chunk:
    """The approval request that made *call* what it is."""
    approval = call["approval"]
    request = {
        "type": "tool-approval-request",
        "approvalId": approval.get("id"),
        "toolCallId": call["toolCallId"],
    }
    for key, name in _REQUEST_KEYS.items():
        if name in approval:
            request[key] = approval[name]
    return request


def _name(call: Part, chunk: Chunk, *, dynamic: bool) -> None:
    name = chunk.get("toolName")
    if not isinstance(name, str):
        name = tool_name(call)
    call["type"] = "dynamic-tool" if dynamic else f"tool-{name}"
    call["toolName"] = name


def _metadata(chunk: Chunk, call: Part, key: str) -> None:
    if isinstance(chunk.get("providerMetadata"), dict):
        call[key] = chunk["providerMetadata"]


def _text(chunk: Chunk) -> str:
    text = chunk.get("errorText", "")
    return text if isinstance(text, str) else ""
