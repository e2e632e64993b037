"""From the chunks of a reply to the message that is kept.

The rules are those of the AI SDK's own reducer where it has one, so that the
stored message is the one every client has built for itself. Where the reducer
throws (a delta for a text that was never begun), the accumulator keeps what it
can: it is total, any JSON value may be applied.
"""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

from .tools import ToolCalls

Chunk: TypeAlias = dict[str, Any]
Part: TypeAlias = dict[str, Any]
UIMessage: TypeAlias = dict[str, Any]

_PASSED_ON = {
    "file": ("mediaType", "url", "filename", "providerMetadata"),
    "source-url": ("sourceId", "url", "title", "providerMetadata"),
    "source-document": (
        "sourceId",
        "mediaType",
        "title",
        "filename",
        "providerMetadata",
    ),
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
        parts = self._message.get("parts")
        self._parts: list[Part] = (
            [part for part in parts if isinstance(part, dict)]
            if isinstance(parts, list)
            else []
        )
        self._continues = base is not None
        self._tools = ToolCalls(self._parts)
        # (kind, id) of an open text or reasoning to its part.
        self._open: dict[tuple[str, str], Part] = {}
        # Deltas that are not yet in their part's text: joining them once keeps
        # a reply of n deltas linear.
        self._pending: dict[int, list[str]] = {}

    @property
    def message(self) -> UIMessage:
        """The message so far; a new dict, whose parts later chunks may change."""
        for part in self._parts:
            if pending := self._pending.pop(id(part), None):
                part["text"] += "".join(pending)
        return {**self._message, "parts": list(self._parts)}

    @property
    def message_id(self) -> str:
        return str(self._message["id"])

    @property
    def empty(self) -> bool:
        """Whether there is nothing worth keeping: no part but step marks."""
        return all(part.get("type") == "step-start" for part in self._parts)

    def is_repeat(self, chunk: Chunk) -> bool:
        """Whether a provider says again what a tool call has already passed.

        Such a chunk must reach neither the log nor a client, whose reducer
        would set the call back.
        """
        return self._tools.is_repeat(chunk)

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
        elif kind in _PASSED_ON:
            keys = _PASSED_ON[kind]
            self._parts.append(
                {"type": kind} | {key: chunk[key] for key in keys if key in chunk}
            )
        elif kind in ("start", "finish", "message-metadata"):
            self._start_or_metadata(kind, chunk)
        elif kind in ("start-step", "step-start"):
            self._parts.append({"type": "step-start"})
        elif kind == "finish-step":
            self._open.clear()
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
            self._message["metadata"] = merged(
                known if isinstance(known, dict) else {}, metadata
            )

    def _text(self, what: str, stage: str, chunk: Chunk) -> None:
        text_id = chunk.get("id")
        key = (what, text_id if isinstance(text_id, str) else "")
        if stage == "start":
            part: Part = {"type": what, "text": "", "state": "streaming"}
            self._parts.append(part)
            self._open[key] = part
        else:
            found = self._open.get(key) or self._last(what)
            if stage == "delta":
                delta = chunk.get("delta")
                if not isinstance(delta, str):
                    return
                if found is None:
                    found = {"type": what, "text": "", "state": "streaming"}
                    self._parts.append(found)
                    self._open[key] = found
                self._pending.setdefault(id(found), []).append(delta)
            elif found is None:
                return
            else:
                found["state"] = "done"
                self._open.pop(key, None)
            part = found
        metadata = chunk.get("providerMetadata")
        if isinstance(metadata, dict):
            # Shallow: a signature comes with the end and joins what is there.
            part["providerMetadata"] = part.get("providerMetadata", {}) | metadata

    def _last(self, what: str) -> Part | None:
        for part in reversed(self._parts):
            if part.get("type") == what and isinstance(part.get("text"), str):
                return part
        return None

    def _data(self, kind: str, chunk: Chunk) -> None:
        if chunk.get("transient") is True:
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


def merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """*old* with *new* in it, objects merged key by key, as the client does."""
    result = dict(old)
    for key, value in new.items():
        known = result.get(key)
        both = isinstance(known, dict) and isinstance(value, dict)
        result[key] = merged(known, value) if both else value  # type: ignore[arg-type]
    return result
