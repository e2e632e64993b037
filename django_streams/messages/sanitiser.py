"""What is taken out of a message before it is stored."""

from __future__ import annotations

from typing import Any

from .parts import Part, UIMessage, is_tool, tool_name

MAX_PROVIDER_STRING = 500
"""Characters that are kept of a string in what a provider's own tool was given or
has answered: the model has read it, and it can be a page long."""

# Their results are told to the provider again, word for word.
_REPLAYED_TOOLS = frozenset(("web_search", "web_fetch"))
_OPAQUE = "encrypted"

# Ids of one request, which the next must not repeat.
_EPHEMERAL = ("itemId", "reasoningEncryptedContent")


def sanitise(message: UIMessage) -> UIMessage:
    """*message* as it is stored; the same again for what was sanitised before.

    OpenAI's ids of one request go, reasoning in which nothing is left goes, and
    long strings of tools that the provider has run itself are cut. Nothing of
    *message* is changed; a message whose parts are no list stays as it is.
    """
    parts = message.get("parts")
    if not isinstance(parts, list):
        return message
    kept = []
    for part in parts:
        if not isinstance(part, dict):
            kept.append(part)
        elif (clean := _sanitised(part)) is not None:
            kept.append(clean)
    return message | {"parts": kept}


def _sanitised(part: Part) -> Part | None:
    """The part as it is stored; None for one that says nothing."""
    for key in ("providerMetadata", "callProviderMetadata"):
        part = _without_ephemeral(part, key)
    if part.get("type") == "reasoning":
        text = part.get("text")
        blank = not isinstance(text, str) or not text.strip()
        # A redacted thought has no text, and the provider wants it back.
        if blank and not part.get("providerMetadata"):
            return None
    provided = is_tool(part) and part.get("providerExecuted")
    if not provided or tool_name(part) in _REPLAYED_TOOLS:
        return part
    return part | {key: _cut(part[key]) for key in ("input", "output") if key in part}


def _without_ephemeral(part: Part, key: str) -> Part:
    metadata = part.get(key)
    openai = metadata.get("openai") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(openai, dict):
        return part
    openai = {name: v for name, v in openai.items() if name not in _EPHEMERAL}
    left = {name: v for name, v in metadata.items() if name != "openai"}
    if openai:
        left["openai"] = openai
    part = {name: value for name, value in part.items() if name != key}
    return part | {key: left} if left else part


def _cut(value: Any) -> Any:
    """*value* with its long strings cut, except what is opaque to us."""
    if isinstance(value, str):
        if len(value) <= MAX_PROVIDER_STRING:
            return value
        marker = f"… [truncated, original length: {len(value)}]"
        return value[: MAX_PROVIDER_STRING - len(marker)] + marker
    if isinstance(value, list):
        return [_cut(item) for item in value]
    if isinstance(value, dict):
        return {
            key: item if key.startswith(_OPAQUE) else _cut(item)
            for key, item in value.items()
        }
    return value
