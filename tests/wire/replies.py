"""Random replies: the chunks of a model that keeps the AI SDK's grammar."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

Chunk = dict[str, Any]
Draw = Any

texts = st.text(max_size=6) | st.sampled_from(("", " ", "\u2028", "é\U0001f600", "<b>"))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2)
    ),
    max_leaves=4,
)
# A key of JavaScript's own prototype is left out of what is merged, by both.
objects = st.dictionaries(
    texts | st.sampled_from(("a", "b", "constructor")), values, max_size=3
)
metadata = st.dictionaries(
    st.sampled_from(("model", "usage", "constructor")),
    st.dictionaries(st.sampled_from(("in", "out")), values, max_size=2) | values,
    max_size=2,
)
# Of one provider: with several, more is kept than a client keeps.
provider = st.fixed_dictionaries({"provider": values})


@dataclass
class Call:
    """A tool call as the model has it."""

    name: str
    dynamic: bool
    state: str = "streaming"
    left: str = ""
    """What has not yet been streamed of the input."""
    begun: bool = False
    approval: str = ""
    step: int = 0


@dataclass
class Reply:
    """What is open while a reply is being written."""

    prefix: str
    draw: Draw
    chunks: list[Chunk] = field(default_factory=list)
    open: list[tuple[str, str]] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    count: int = 0
    step: int = 0

    def say(
        self, type_: str, maybe: dict[str, Any] | None = None, /, **members: Any
    ) -> None:
        """Append a chunk; each of the members in *maybe* may be there."""
        for name, strategy in (maybe or {}).items():
            if self.draw(st.booleans()):
                members[name] = self.draw(strategy)
        self.chunks.append({"type": type_} | members)

    def new_id(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    # Texts

    def text(self) -> None:
        what = self.one("text", "reasoning")
        if not self.open or self.draw(st.booleans()):
            text_id = self.new_id()
            self.open.append((what, text_id))
            self.say(f"{what}-start", {"providerMetadata": provider}, id=text_id)
            return
        what, text_id = self.one(*self.open)
        if self.draw(st.integers(0, 2)):
            delta = self.draw(texts)
            optional = {"providerMetadata": provider}
            self.say(f"{what}-delta", optional, id=text_id, delta=delta)
        else:
            self.open.remove((what, text_id))
            self.say(f"{what}-end", {"providerMetadata": provider}, id=text_id)

    # Parts that come whole, and what makes no part

    def whole(self) -> None:
        optional: dict[str, Any] = {"providerMetadata": provider}
        url = "https://example.org/"
        match self.one("file", "reasoning-file", "url", "document", "custom", "steer"):
            case "url":
                optional["title"] = texts
                self.say("source-url", optional, sourceId=self.new_id(), url=url)
            case "document":
                optional["filename"] = texts
                members = {"mediaType": "text/plain", "title": "T"}
                self.say("source-document", optional, sourceId="s", **members)
            case "custom":
                self.say("custom", optional, kind="provider.kind")
            case "steer":
                parts = [{"type": "text", "text": "no"}]
                self.say("steering-message", id=self.new_id(), parts=parts)
            case kind:
                self.say(kind, optional, mediaType="image/png", url="data:,")

    def data(self) -> None:
        optional = {"id": st.sampled_from(("1", "2")), "transient": st.booleans()}
        self.say(self.one("data-a", "data-b"), optional, data=self.draw(values))

    def aside(self) -> None:
        match self.one("metadata", "unknown", "abort", "error"):
            case "metadata":
                self.say("message-metadata", messageMetadata=self.draw(metadata))
            case "unknown":
                self.say(self.one("step-end", "x", "text-stop", ""), id="1", delta="d")
            case "abort":
                self.say("abort", {"reason": texts})
            case "error":
                self.say("error", errorText="no")

    # Tool calls

    def tool(self) -> None:
        if not self.calls or not self.draw(st.integers(0, 3)):
            self.new_call()
            return
        call_id = self.one(*self.calls)
        call = self.calls[call_id]
        choices = MOVES[call.state]
        if call.state == "streaming":
            # An input is streamed within its step, and answered when it is whole.
            choices = INPUT if call.step == self.step else ()
            if not (call.begun and call.left):
                choices += ("request", "output")
        if choices:
            self.move(self.one(*choices), call_id, call)

    def new_call(self) -> None:
        call_id = self.new_id()
        name = self.one("look", "find-it")
        call = Call(name, self.draw(st.booleans()), step=self.step)
        self.calls[call_id] = call
        begin = self.one("start", "start", "input", "input-error")
        if begin == "start":
            call.left = json.dumps(self.draw(objects))
            self.say("tool-input-start", self.described(), **self.named(call_id, call))
        else:
            self.move(begin, call_id, call)

    def named(self, call_id: str, call: Call) -> dict[str, Any]:
        named = {"toolCallId": call_id, "toolName": call.name}
        return named | ({"dynamic": True} if call.dynamic else {})

    @staticmethod
    def described() -> dict[str, Any]:
        return {
            "providerExecuted": st.booleans(),
            "providerMetadata": provider,
            "title": texts,
            "toolMetadata": objects,
        }

    def move(self, how: str, call_id: str, call: Call) -> None:
        optional = self.described()
        del optional["title"]
        match how:
            case "delta":
                size = self.draw(st.integers(0, len(call.left)))
                piece, call.left = call.left[:size], call.left[size:]
                call.begun = call.begun or bool(piece)
                self.say("tool-input-delta", toolCallId=call_id, inputTextDelta=piece)
            case "input":
                named = self.named(call_id, call) | {"input": self.draw(objects)}
                self.say("tool-input-available", self.described(), **named)
                call.state = "available"
            case "input-error":
                named = self.named(call_id, call) | {"input": self.draw(objects)}
                self.say("tool-input-error", optional, errorText="bad", **named)
                call.state = "settled"
            case "request":
                call.approval = self.new_id()
                more = {"approvalDescriptor": objects, "isAutomatic": st.booleans()}
                more |= {"reason": texts, "signature": texts}
                ids = {"approvalId": call.approval, "toolCallId": call_id}
                self.say("tool-approval-request", more, **ids)
                call.state = "requested"
            case "response":
                approved = self.draw(st.booleans())
                more = {"reason": texts, "providerMetadata": provider}
                ids = {"approvalId": call.approval}
                self.say("tool-approval-response", more, approved=approved, **ids)
                call.state = "approved" if approved else "denied"
            case "deny":
                self.say("tool-output-denied", toolCallId=call_id)
                call.state = "settled"
            case "error":
                self.say(
                    "tool-output-error", optional, toolCallId=call_id, errorText="e"
                )
                call.state = "settled"
            case "output":
                optional["preliminary"] = st.booleans()
                output = self.draw(values)
                self.say(
                    "tool-output-available", optional, toolCallId=call_id, output=output
                )
                call.state = "settled"

    def reset(self) -> None:
        """The model begins the step anew."""
        self.say("reset-step")
        begun = max(
            i for i, chunk in enumerate(self.chunks) if chunk["type"] == "start-step"
        )
        self.open.clear()
        for chunk in self.chunks[begun:]:
            self.calls.pop(chunk.get("toolCallId", ""), None)


INPUT: tuple[str, ...] = ("delta", "delta", "input", "input-error")
MOVES: dict[str, tuple[str, ...]] = {
    "streaming": INPUT,
    "available": ("request", "output", "error"),
    "requested": ("response", "response", "output", "error", "deny"),
    "approved": ("output", "error"),
    "denied": ("deny",),
    "settled": ("output", "error"),
}


@st.composite
def replies(draw: Draw, *, prefix: str = "", resets: bool = True) -> list[Chunk]:
    """The chunks of one reply, of several steps, some cut short."""
    reply = Reply(prefix, draw)
    if draw(st.booleans()):
        named = {} if prefix else {"messageId": st.just("m1")}
        reply.say("start", {"messageMetadata": metadata} | named)
    for _ in range(draw(st.integers(1, 3))):
        reply.say("start-step")
        reply.step += 1
        actions = (reply.text, reply.text, reply.tool, reply.tool, reply.whole)
        for _ in range(draw(st.integers(0, 8))):
            reply.one(*actions, reply.data, reply.aside)()
        if resets and not draw(st.integers(0, 9)):
            reply.reset()
        if draw(st.booleans()):
            reply.say("finish-step")
    if draw(st.booleans()):
        reply.say("finish", {"messageMetadata": metadata}, finishReason="stop")
    return reply.chunks
