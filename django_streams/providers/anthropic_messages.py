"""UI messages as those of the Messages API."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ..messages.parts import UIMessage, parts_of
from ..messages.steps import Result, steps
from .files import file_of

Block = dict[str, Any]

PROVIDER = "anthropic"
"""The key of what is kept in the metadata of parts, to be told again."""

SERVER_TOOL = "server_tool_use"

_IMAGES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_PDF = "application/pdf"
_THOUGHTS = ("thinking", "redacted_thinking")

# Of ids of other providers, what this one refuses.
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")


def to_messages(messages: Iterable[UIMessage]) -> list[dict[str, Any]]:
    """UI messages as the ``messages`` of a request.

    Text is passed on, of the user's files the images and PDFs, the model's own
    thoughts with their signatures, and calls with their results, also of tools
    that the provider runs itself. What a model cannot be told in this form is left
    out, and with it a message that is then empty; so are ``system`` messages,
    which a request has no place for but its ``system``.
    """
    told: list[dict[str, Any]] = []
    for message in messages:
        match message.get("role"):
            case "user":
                _add(told, "user", list(_asked(message)))
            case "assistant":
                for role, blocks in _reply(message):
                    _add(told, role, blocks)
    if told and told[-1]["role"] == "assistant":
        last = told[-1]["content"][-1]
        if last["type"] == "text":
            # The model is to go on with it, and may not from behind a blank.
            last["text"] = last["text"].rstrip()
    return told


def system_of(messages: Iterable[UIMessage]) -> list[str]:
    """The texts of the ``system`` messages."""
    return [
        text
        for message in messages
        if message.get("role") == "system"
        for part in parts_of(message)
        if (text := _text(part)) is not None
    ]


def _add(told: list[dict[str, Any]], role: str, blocks: list[Block]) -> None:
    if not blocks:
        return
    if told and told[-1]["role"] == role:
        told[-1]["content"] += blocks
    else:
        told.append({"role": role, "content": blocks})


def _asked(message: UIMessage) -> Iterator[Block]:
    for part in parts_of(message):
        if (text := _text(part)) is not None:
            yield {"type": "text", "text": text}
        elif (block := _file(part)) is not None:
            yield block


def _text(part: dict[str, Any]) -> str | None:
    """The text of a part; None for a blank one, which is refused."""
    text = part.get("text")
    if part.get("type") != "text" or not isinstance(text, str) or not text.strip():
        return None
    return text


def _file(part: dict[str, Any]) -> Block | None:
    file = file_of(part)
    if file is None or file.media_type not in (*_IMAGES, _PDF):
        return None
    if file.data is None:
        source = {"type": "url", "url": file.url}
    else:
        data = base64.b64encode(file.data).decode()
        source = {"type": "base64", "media_type": file.media_type, "data": data}
    if file.media_type != _PDF:
        return {"type": "image", "source": source}
    title = {"title": file.name} if file.name else {}
    return {"type": "document", "source": source, **title}


def _reply(message: UIMessage) -> Iterator[tuple[str, list[Block]]]:
    for step in steps(message):
        said: list[Block] = []
        results: list[Block] = []
        for one in step.content:
            if not isinstance(one, Result):
                said += _said(one)
            elif one.provided:
                said += _provided(one)
            else:
                call_id = _NOT_IN_ID.sub("_", one.call_id)
                call = {"type": "tool_use", "id": call_id, "name": one.name}
                said.append(call | {"input": one.input})
                results.append(_result(one, call_id))
        while said and said[-1]["type"] in _THOUGHTS:
            # Nothing came of them, and a reply may not end with one.
            said.pop()
        yield "assistant", said
        yield "user", results


def _said(part: dict[str, Any]) -> list[Block]:
    if (text := _text(part)) is not None:
        return [{"type": "text", "text": text}]
    ours = _kept(part, "providerMetadata") if part.get("type") == "reasoning" else {}
    if isinstance(data := ours.get("redactedData"), str):
        return [{"type": "redacted_thinking", "data": data}]
    if isinstance(signature := ours.get("signature"), str):
        thought = {"type": "thinking", "thinking": str(part.get("text", ""))}
        return [thought | {"signature": signature}]
    return []


def _result(one: Result, call_id: str) -> Block:
    told: Block = {"type": "tool_result", "tool_use_id": call_id, "content": one.text}
    if one.failed:
        # An error without a text is refused.
        told |= {"is_error": True, "content": one.text or "The tool failed."}
    return told


def _provided(one: Result) -> list[Block]:
    """A call of a tool of the server, with its result; of another provider none."""
    if _kept(one.part, "callProviderMetadata").get("type") != SERVER_TOOL:
        return []
    kind = "tool_search" if one.name.startswith("tool_search") else one.name
    kind += "_tool_result"
    content = one.output
    if one.failed:
        content = {"type": f"{kind}_error", "error_code": one.text}
    call = {"type": SERVER_TOOL, "id": one.call_id, "name": one.name}
    result = {"type": kind, "tool_use_id": one.call_id, "content": content}
    return [call | {"input": one.input}, result]


def _kept(part: dict[str, Any], key: str) -> dict[str, Any]:
    metadata = part.get(key)
    ours = metadata.get(PROVIDER) if isinstance(metadata, dict) else None
    return ours if isinstance(ours, dict) else {}
