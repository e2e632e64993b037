"""From what a handler yields to chunks that no client chokes on.

The AI SDK's reducer throws on a delta whose text was never begun and keeps a
message under an id of its own when ``start`` names none. So every reply goes
out as ``start{messageId}``, ``start-step``, parts that are begun before they
are used, ``finish-step``, ``finish``, whatever the handler wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

Chunk: TypeAlias = dict[str, Any]

DELTA_CHARS = 32_768
"""A longer string goes out in pieces: far below the size limit of a chunk."""

# Chunks that make no part, so that a text of ours may go on across them.
_PARTLESS = frozenset(("message-metadata", "abort"))


INPUT_INTERRUPTED = "The tool call was interrupted."
"""Said of a call whose input was still being written when its process died."""


class Grammar:
    """The state of one reply on the wire.

    *message_id* is the id that the reply is kept under; a ``start`` of the
    handler's own that names another id overrules it. *text_id* names the texts
    made of yielded strings. A *continuation* sends no message id: the client
    adds to the message it has.
    """

    def __init__(
        self, message_id: str, *, text_id: str, continuation: bool = False
    ) -> None:
        self.message_id = message_id
        self._text_id = text_id
        self._continuation = continuation
        self._started = False
        self._finished = False
        self._in_step = False
        self._own_step = False
        self._own_text: str | None = None
        self._texts = 0
        self._open: dict[tuple[str, str], None] = {}
        # What an interrupted attempt left open, until the next item tells
        # whether it goes on with it.
        self._left: set[tuple[str, str]] = set()
        self._inputs: dict[str, Chunk] = {}

    def resume(self, chunks: Iterable[Chunk]) -> None:
        """Go on behind *chunks*, which an interrupted attempt has put in the log.

        A text made of strings is continued by strings. A text, reasoning or
        tool input of the handler's own is continued if the first item that
        makes a part names it; else it is ended before that item.
        """
        for chunk in chunks:
            self._recall(chunk)
        self._left = set(self._open) | {("tool", call) for call in self._inputs}

    @property
    def finished(self) -> bool:
        """Whether the reply has been said to its end."""
        return self._finished

    @property
    def started(self) -> bool:
        """Whether anything has been said at all."""
        return self._started

    def text(self, text: str) -> list[Chunk]:
        """The chunks for a yielded string; none for an empty one."""
        if not text:
            return []
        chunks = self._begin() + self._end_left()
        if self._own_text is None:
            if not self._open and not self._in_step:
                self._in_step = self._own_step = True
                chunks.append({"type": "start-step"})
            self._texts += 1
            number = "" if self._texts == 1 else f"-{self._texts}"
            self._own_text = self._text_id + number
            chunks.append({"type": "text-start", "id": self._own_text})
        chunks += [
            {
                "type": "text-delta",
                "id": self._own_text,
                "delta": text[at : at + DELTA_CHARS],
            }
            for at in range(0, len(text), DELTA_CHARS)
        ]
        return chunks

    def chunk(self, chunk: Chunk) -> list[Chunk]:
        """The chunks for a yielded chunk.

        Raises ``TypeError`` for what is not a dict with a string ``type``, and
        for a text without a string ``id`` or ``delta``.
        """
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        if not isinstance(kind, str):
            raise TypeError(
                "a handler yields strings or chunks, which are dicts with a string "
                f"'type'; got {type(chunk).__name__}: {str(chunk)[:80]!r}"
            )
        if kind == "start":
            return self._start(chunk)
        chunks = self._begin()
        if not (kind in _PARTLESS or chunk.get("transient") is True):
            chunks += self._end_own_text() + self._end_left(chunk)
        match kind:
            case "start-step" | "step-start":
                chunks += self._end_own_step()
                self._in_step = True
                # No client knows the other name.
                chunks.append({**chunk, "type": "start-step"})
            case "finish-step":
                chunks += self._end_open()
                self._in_step = self._own_step = False
                chunks.append(chunk)
            case "finish":
                chunks += self._end_own_step() + self._end_open()
                self._finished = True
                chunks.append(chunk)
            case "reset-step":
                # The reducer forgets the texts: what goes on is begun anew.
                self._open.clear()
                chunks.append(chunk)
            case _:
                chunks += self._part(kind, chunk)
        return chunks

    def finish(self) -> list[Chunk]:
        """What is missing at the end of a reply; nothing if nothing was said."""
        if not self._started:
            return []
        chunks = self._end_own_text() + self._end_left()
        chunks += self._end_own_step() + self._end_open()
        if not self._finished:
            self._finished = True
            chunks.append({"type": "finish"})
        return chunks

    def cut(self) -> list[Chunk]:
        """The end of a reply that was stopped or failed: only our own text ends."""
        return self._end_own_text()

    def _begin(self) -> list[Chunk]:
        if self._started:
            return []
        self._started = True
        if self._continuation:
            return [{"type": "start"}]
        return [{"type": "start", "messageId": self.message_id}]

    def _start(self, chunk: Chunk) -> list[Chunk]:
        if self._started:
            # A second start would empty the message; only its metadata counts.
            metadata = chunk.get("messageMetadata")
            if metadata is None:
                return []
            return [{"type": "message-metadata", "messageMetadata": metadata}]
        self._started = True
        chunk = dict(chunk)
        message_id = chunk.pop("messageId", None)
        if not self._continuation:
            if isinstance(message_id, str) and 0 < len(message_id) <= 256:
                self.message_id = message_id
            chunk["messageId"] = self.message_id
        return [chunk]

    def _part(self, kind: str, chunk: Chunk) -> list[Chunk]:
        what, _, stage = kind.partition("-")
        if what not in ("text", "reasoning") or stage not in ("start", "delta", "end"):
            return [chunk]
        text_id = chunk.get("id")
        if not isinstance(text_id, str):
            raise TypeError(f"a {kind} chunk needs a string 'id'; got {text_id!r}")
        delta = chunk.get("delta")
        if stage == "delta" and not isinstance(delta, str):
            raise TypeError(f"a {kind} chunk needs a string 'delta'; got {delta!r}")
        key = (what, text_id)
        if stage == "end":
            if key not in self._open:
                return []
            del self._open[key]
            return [chunk]
        if key in self._open:
            return [chunk] if stage == "delta" else []
        self._open[key] = None
        if stage == "start":
            return [chunk]
        return [{"type": f"{what}-start", "id": text_id}, chunk]

    def _end_own_text(self) -> list[Chunk]:
        if self._own_text is None:
            return []
        text_id, self._own_text = self._own_text, None
        return [{"type": "text-end", "id": text_id}]

    def _end_open(self) -> list[Chunk]:
        # From version 6 on the reducer forgets open texts at the end of a step.
        opened, self._open = self._open, {}
        return [{"type": f"{what}-end", "id": text_id} for what, text_id in opened]

    def _end_own_step(self) -> list[Chunk]:
        if not self._own_step:
            return []
        self._in_step = self._own_step = False
        return [*self._end_open(), {"type": "finish-step"}]

    def _end_left(self, chunk: Chunk | None = None) -> list[Chunk]:
        """Ends what an interrupted attempt left open, but for what *chunk*
        goes on with."""
        if not self._left:
            return []
        left, self._left = self._left, set()
        if chunk is not None:
            what = str(chunk.get("type")).partition("-")[0]
            key = "toolCallId" if what == "tool" else "id"
            left.discard((what, str(chunk.get(key))))
        chunks: list[Chunk] = []
        for what, part_id in [key for key in self._open if key in left]:
            del self._open[what, part_id]
            chunks.append({"type": f"{what}-end", "id": part_id})
        inputs, self._inputs = self._inputs, {}
        for call_id, begun in inputs.items():
            if ("tool", call_id) in left:
                chunks.append(
                    {key: begun[key] for key in ("toolName", "dynamic") if key in begun}
                    | {
                        "type": "tool-input-error",
                        "toolCallId": call_id,
                        "errorText": INPUT_INTERRUPTED,
                    }
                )
        return chunks

    def _recall(self, chunk: Chunk) -> None:
        self._started = True
        kind = str(chunk.get("type"))
        what, _, stage = kind.partition("-")
        part_id = chunk.get("id")
        call_id = chunk.get("toolCallId")
        if kind == "start":
            self.message_id = str(chunk.get("messageId") or self.message_id)
        elif kind in ("start-step", "step-start"):
            # Perhaps the handler's own: ended by whoever comes first.
            self._in_step = self._own_step = True
        elif kind == "finish-step":
            self._in_step = self._own_step = False
            self._open.clear()
        elif kind == "reset-step":
            self._open.clear()
        elif kind == "finish":
            self._finished = True
        elif kind == "tool-input-start" and isinstance(call_id, str):
            self._inputs[call_id] = chunk
        elif what == "tool" and stage != "input-delta":
            self._inputs.pop(str(call_id), None)
        elif what not in ("text", "reasoning") or not isinstance(part_id, str):
            return
        elif stage == "end":
            self._open.pop((what, part_id), None)
            if part_id == self._own_text:
                self._own_text = None
        elif stage == "start" and self._is_own(what, part_id):
            self._texts += 1
            self._own_text = part_id
        elif stage == "start":
            self._open[what, part_id] = None

    def _is_own(self, what: str, part_id: str) -> bool:
        number = "" if not self._texts else f"-{self._texts + 1}"
        return what == "text" and part_id == self._text_id + number
