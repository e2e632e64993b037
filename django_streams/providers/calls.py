"""A tool call while a model writes it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from typing import Any

Chunk = dict[str, Any]


class Call:
    """Makes chunks of a call that comes in pieces.

    Its id is ours and not the provider's, unless *call_id* is given: several
    repeat theirs from one completion to the next. *provided* says that the
    provider runs it, *metadata* is the ``providerMetadata`` of the call.
    """

    def __init__(
        self,
        call_id: str | None = None,
        *,
        provided: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.call_id = call_id or f"call_{secrets.token_hex(12)}"
        self._provided = {"providerExecuted": True} if provided else {}
        self._metadata = {"providerMetadata": metadata} if metadata else {}
        self._name = ""
        self._begun = False
        self._arguments: list[str] = []

    def take(self, name: str | None, text: str | None) -> Iterator[Chunk]:
        """Of a piece the name of the tool, if it has come, and the text of the
        arguments that it adds."""
        # All of the name comes with the first piece that has any.
        self._name = self._name or name or ""
        if self._name and not self._begun:
            self._begun = True
            yield {"type": "tool-input-start", **self._of}
            if self._arguments:
                yield self._delta("".join(self._arguments))
        if text:
            self._arguments.append(text)
            if self._begun:
                yield self._delta(text)

    def end(self, given: Any = None) -> Iterator[Chunk]:
        """The call is written; *given* are its arguments where they came whole."""
        if not self._begun:
            return
        text = "".join(self._arguments)
        if text.strip():
            try:
                given = json.loads(text)
            except (ValueError, RecursionError):
                given = text
        elif given is None:
            # Without parameters some models write nothing at all.
            given = {}
        if isinstance(given, dict):
            kind = {"type": "tool-input-available", "input": given}
        else:
            error = f"The arguments of {self._name} are no JSON object."
            kind = {"type": "tool-input-error", "errorText": error, "input": {}}
        yield {**kind, **self._of, **self._metadata}

    @property
    def _of(self) -> Chunk:
        return {"toolCallId": self.call_id, "toolName": self._name, **self._provided}

    def _delta(self, text: str) -> Chunk:
        kind = {"type": "tool-input-delta", "toolCallId": self.call_id}
        return kind | {"inputTextDelta": text}
