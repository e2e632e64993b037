"""Messages as code gives them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from .. import ids
from ..messages.valid import is_message
from ..turns.records import UIMessage

Messages: TypeAlias = str | UIMessage | Sequence[UIMessage]
"""A text is a message of the user; messages are UIMessage dicts."""

MakeMessages: TypeAlias = Callable[[list[UIMessage]], Messages | Awaitable[Messages]]
"""Makes messages of the transcript as it is when the turn's time has come."""


def listed(messages: Messages) -> list[UIMessage]:
    """Messages as a list of dicts that can be kept, or ``ValueError``."""
    if isinstance(messages, str):
        part = {"type": "text", "text": messages}
        return [{"id": ids.new_id("user_"), "role": "user", "parts": [part]}]
    listed = [messages] if isinstance(messages, dict) else list(messages)
    for at, message in enumerate(listed):
        if not is_message(message):
            raise ValueError(
                f"message {at} is {message!r:.200}; a message is a dict with an id, "
                'a role ("user", "assistant" or "system") and a list of parts'
            )
    return listed
