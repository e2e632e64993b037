"""From the chunks of a reply to the message that is kept.

The rules are those of the AI SDK's own reducer, so that the stored message is
the one every client has built for itself; ``docs/reference/messages.md`` lists
where more is kept, or less of what is not yet whole. Where the reducer throws
(a delta for a text that was never begun), the accumulator keeps what it can: it
is total, any JSON value may be applied.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from .parts import Chunk, Part, UIMessage, copy_known, merged, parts_of, truthy
from .tools import ToolCalls

# Chunks that are parts already, and what is kept of them.
_WHOLE = {
    "file": ("mediaType", "url", "filename", "providerMetadata"),
    "reasoning-file": ("mediaType", "url", "filename", "providerMetadata"),
    "source-url": ("sourceId", "url", "title", "providerMetadata"),
    "source-document": (
        "sourceId",
        "mediaType",
        "title",
        "filename",
        "providerMetadata",
    ),
    "custom": ("kind", "providerMetadata"),
    "steering-message": ("id", "parts"),
}


class Accumulator:
    """Builds one assistant message.

    *base* is the message that a continuation adds to; it is not changed.
    """

    def __init__(self, message_id: str, *, base: UIMessage | None = None) -> None:
        self._message: UIMessage = (
            copy.deepcopy(base) if base else {"id": message_id, "role": "assistant"}
        )
        self._message["id"] = message_id
        self._parts: list[Part] = parts_of(self._message)
        self._continues = base is not None
        self._tools = ToolCalls(self._parts)
        # (kind, id) of an open text or reasoning to its part.
        self._open: dict[tuple[str, str], Part] = {}
        # Deltas that are not yet in their part's text, by the part's identity:
        # joining them once keeps a reply of n deltas linear. Parts in here are
        # alive, or their identity could be another part's.
        self._pending: dict[int, list[str]] = {}

    @property
    def message(self) -> UIMessage:
        """The message so far; a new dict, whose parts later chunks may change."""
        self._flush()
        return {**self._message, "parts": list(self._parts)}

    @property
    def message_id(self) -> str:
        return str(self._message["id"])

    @property
    def empty(self) -> bool:
        """Whether there is nothing worth keeping: no part but step marks."""
        return all(part.get("type") == "step-start" for part in self._parts)

    def call(self, call_id: str) -> Part | None:
        """The newest tool call of that id; later chunks may change it."""
        return self._tools.call(call_id)

    def forwarded(self, chunk: Chunk) -> list[Chunk]:
        """The chunks to store, to show and to apply for *chunk*.

        Mostly itself. Nothing, when a provider says again what a tool call has
        already passed, for a client would set the call back, and when it is about
        a call that this message does not have, for a client would give up. An
        input that comes after its approval was asked for is followed by the
        request again, for the input alone makes a client forget that it was asked.
        """
        return self._tools.forwarded(chunk)

    def amend(self, change: Callable[[Part], Part | None]) -> bool:
        """Replace the newest tool call for which *change* returns another part.

        For what comes from elsewhere than the model's stream, a tool's result
        or an approval: see :mod:`.answers`. False when there was none.
        """
        for part in reversed(self._parts):
            if (changed := change(part)) is not None:
                part.clear()
                part.update(changed)
                return True
        return False

    def apply(self, chunk: object) -> None:
        """Take one chunk; what is unknown or malformed changes nothing."""
        if not isinstance(chunk, dict):
            return
        kind = chunk.get("type")
        if not isinstance(kind, str):
            return
        if kind.startswith("data-"):
            self._data(kind, chunk)
        elif kind.startswith("tool-"):
            self._tools.apply(kind, chunk)
        elif kind in _WHOLE:
            part: Part = {"type": kind}
            copy_known(chunk, part, *_WHOLE[kind])
            self._parts.append(part)
        elif kind in ("start", "finish", "message-metadata"):
            self._start_or_metadata(kind, chunk)
        elif kind in ("start-step", "step-start"):
            self._parts.append({"type": "step-start"})
        elif kind == "reset-step":
            self._reset_step()
        else:
            what, _, stage = kind.partition("-")
            if what in ("text", "reasoning") and stage in ("start", "delta", "end"):
                self._text(what, stage, chunk)

    def _start_or_metadata(self, kind: str, chunk: Chunk) -> None:
        message_id = chunk.get("messageId")
        if (
            kind == "start"
            and not self._continues
            and isinstance(message_id, str)
            and message_id
        ):
            self._message["id"] = message_id
        metadata = chunk.get("messageMetadata")
        if isinstance(metadata, dict):
            known = self._message.get("metadata")
            self._message["metadata"] = (
                merged(known, metadata) if isinstance(known, dict) else metadata
            )

    def _text(self, what: str, stage: str, chunk: Chunk) -> None:
        key = (what, _text_id(chunk.get("id")))
        if stage == "start":
            part = self._begin(key, chunk)
        else:
            found = self._open.get(key) or self._last(what)
            if stage == "delta":
                delta = chunk.get("delta")
                if not isinstance(delta, str):
                    return
                if found is None:
                    found = self._begin(key, chunk)
                self._pending.setdefault(id(found), []).append(delta)
            elif found is None:
                return
            else:
                found["state"] = "done"
                self._open.pop(key, None)
                if what == "text":
                    copy_known(chunk, found, "citations")
            part = found
        metadata = chunk.get("providerMetadata")
        if isinstance(metadata, dict):
            # Shallow: a signature comes with the end and joins what is there.
            known = part.get("providerMetadata")
            part["providerMetadata"] = (
                known | metadata if isinstance(known, dict) else metadata
            )

    def _begin(self, key: tuple[str, str], chunk: Chunk) -> Part:
        part: Part = {"type": key[0], "text": "", "state": "streaming"}
        if key[0] == "reasoning":
            copy_known(chunk, part, "id")
        self._parts.append(part)
        self._open[key] = part
        return part

    def _last(self, what: str) -> Part | None:
        for part in reversed(self._parts):
            if part.get("type") == what and isinstance(part.get("text"), str):
                return part
        return None

    def _flush(self) -> None:
        for part in self._parts:
            if pending := self._pending.pop(id(part), None):
                part["text"] += "".join(pending)

    def _reset_step(self) -> None:
        """Drop the parts of a step that the model begins anew."""
        self._flush()
        self._open.clear()
        while self._parts and self._parts[-1].get("type") != "step-start":
            self._parts.pop()
        self._tools.reread()

    def _data(self, kind: str, chunk: Chunk) -> None:
        if truthy(chunk.get("transient")):
            return
        data_id = chunk.get("id")
        if data_id is not None:
            for part in self._parts:
                if part.get("type") == kind and part.get("id") == data_id:
                    part["data"] = chunk.get("data")
                    return
        part = {"type": kind, "data": chunk.get("data")}
        if data_id is not None:
            part["id"] = data_id
        self._parts.append(part)


def _text_id(value: object) -> str:
    """The id under which a text is open; a number names what its digits name."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else ""
