"""UI messages as the message history of pydantic-ai."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any

from ..messages.parts import UIMessage, parts_of
from ..messages.steps import Result, steps
from .files import file_of

PROVIDER = "pydantic_ai"
"""The key of what is kept in the metadata of parts, to be told again."""

KEPT = ("id", "signature", "provider_name", "provider_details")
"""Of a thought, beside its text."""


def to_messages(messages: Iterable[UIMessage]) -> list[Any]:
    """UI messages as ``message_history``: ``ModelRequest`` and ``ModelResponse``.

    The last one is the prompt, so a run is given no other. Text is passed on, of
    the user's files those with a public address and those with data, thoughts,
    and calls with their results, but for the calls that the model's provider has
    run itself.
    """
    told: list[Any] = []
    vocabulary = _Vocabulary()
    for message in messages:
        match message.get("role"):
            case "user":
                _add(told, vocabulary.ModelRequest, vocabulary.asked(message))
            case "system":
                _add(told, vocabulary.ModelRequest, vocabulary.system(message))
            case "assistant":
                for step in steps(message):
                    said = list(vocabulary.said(step.content))
                    _add(told, vocabulary.ModelResponse, said)
                    ours = [one for one in step.results if not one.provided]
                    results = [vocabulary.result(one) for one in ours]
                    _add(told, vocabulary.ModelRequest, results)
    return told


def _add(told: list[Any], kind: Any, parts: list[Any]) -> None:
    if not parts:
        return
    if told and isinstance(told[-1], kind):
        told[-1].parts = [*told[-1].parts, *parts]
    else:
        told.append(kind(parts=parts))


class _Vocabulary:
    """The classes of pydantic-ai, in whichever version is installed."""

    def __init__(self) -> None:
        try:
            self._classes = importlib.import_module("pydantic_ai.messages")
        except ImportError as error:
            raise ImportError(
                "this needs the pydantic-ai-slim package: "
                "pip install 'django-streams[pydantic-ai]'"
            ) from error
        self.ModelRequest = self._classes.ModelRequest
        self.ModelResponse = self._classes.ModelResponse

    def system(self, message: UIMessage) -> list[Any]:
        texts = [one for part in parts_of(message) if (one := _text(part))]
        return [self._classes.SystemPromptPart(content=text) for text in texts]

    def asked(self, message: UIMessage) -> list[Any]:
        content: list[Any] = []
        for part in parts_of(message):
            if text := _text(part):
                content.append(text)
            elif (file := self._file(part)) is not None:
                content.append(file)
        if not content:
            return []
        if all(isinstance(one, str) for one in content):
            return [self._classes.UserPromptPart(content="".join(content))]
        return [self._classes.UserPromptPart(content=content)]

    def _file(self, part: dict[str, Any]) -> Any:
        file = file_of(part)
        if file is None:
            return None
        kind = file.media_type.partition("/")[0]
        if file.data is not None:
            kinds = ("image", "audio", "video", "text")
            if kind not in kinds and file.media_type != "application/pdf":
                return None
            return self._classes.BinaryContent(
                data=file.data, media_type=file.media_type
            )
        names = {"image": "ImageUrl", "audio": "AudioUrl", "video": "VideoUrl"}
        if kind == "text" or file.media_type == "application/pdf":
            return self._classes.DocumentUrl(url=file.url)
        if kind not in names:
            return None
        return getattr(self._classes, names[kind])(url=file.url)

    def said(self, content: Iterable[Any]) -> Iterator[Any]:
        for one in content:
            if isinstance(one, Result):
                if not one.provided:
                    yield self._classes.ToolCallPart(
                        tool_name=one.name, args=one.input, tool_call_id=one.call_id
                    )
            elif text := _text(one):
                yield self._classes.TextPart(content=text)
            elif one.get("type") == "reasoning":
                yield from self._thought(one)

    def _thought(self, part: dict[str, Any]) -> Iterator[Any]:
        metadata = part.get("providerMetadata")
        kept = metadata.get(PROVIDER) if isinstance(metadata, dict) else None
        kept = kept if isinstance(kept, dict) else {}
        fields = self._classes.ThinkingPart.__dataclass_fields__
        known = {key: kept[key] for key in KEPT if key in kept and key in fields}
        text = str(part.get("text", ""))
        if text.strip() or known:
            yield self._classes.ThinkingPart(content=text, **known)

    def result(self, one: Result) -> Any:
        kind = self._classes.ToolReturnPart
        failed: dict[str, Any] = {}
        if one.failed and "outcome" in kind.__dataclass_fields__:
            failed["outcome"] = "failed"
        return kind(
            tool_name=one.name,
            content=one.output,
            tool_call_id=one.call_id,
            **failed,
        )


def _text(part: dict[str, Any]) -> str:
    text = part.get("text")
    return text if part.get("type") == "text" and isinstance(text, str) else ""
