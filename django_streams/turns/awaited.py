"""What a conversation waits with, kept in its row: answers to tool calls whose
message is not stored yet, and the continuation that waits for other answers."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

from .. import codec
from ..messages import answers as changes
from ..models import Conversation
from . import door
from .conversations import NO_LIMIT, Locked


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a tool call, or with *approved* whether it is allowed."""

    call_id: str
    output: Any = None
    failed: bool = False
    error_text: str | None = None
    approved: bool | None = None

    @property
    def change(self) -> changes.Change:
        if self.approved is not None:
            return changes.tool_approval(self.call_id, self.approved)
        return changes.tool_result(
            self.call_id, self.output, failed=self.failed, error_text=self.error_text
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A continuation that waits for the other answers."""

    request_id: str
    body: str | None
    client_tools: str | None
    user_key: str
    sure: bool
    """False as long as no answer that asked for it has found its call."""
    owner: str = ""
    """The connection that asked last; empty once it is gone."""
    message_id: str = ""
    """The reply whose calls were answered."""
    waits: bool = False
    """For other calls of that reply, and for no other reply's."""

    def of(self, owner: str) -> Wanted:
        return replace(self, owner=owner)


@dataclass(slots=True, kw_only=True)
class Awaited:
    answers: list[Answer] = field(default_factory=list)
    wanted: Wanted | None = None


def read(text: str | None) -> Awaited:
    """From what the row holds."""
    if text is None:
        return Awaited()
    value = codec.decode(text)
    wanted = value["wanted"]
    return Awaited(
        answers=[Answer(**one) for one in value["answers"]],
        wanted=None if wanted is None else Wanted(**wanted),
    )


def load(held: Locked) -> Awaited:
    return read(rows(held).values_list("awaited", flat=True).get())


def peek(conversation_pk: int) -> Awaited:
    """Without the lock: more may have come by the time that it is looked at."""
    found: Any = Conversation.objects.using(door.alias()).filter(pk=conversation_pk)
    return read(found.values_list("awaited", flat=True).first())


def store(held: Locked, waiting: Awaited) -> None:
    empty = not waiting.answers and waiting.wanted is None
    text = None if empty else codec.encode(asdict(waiting), limit=NO_LIMIT)
    rows(held).update(awaited=text)


def forget(held: Locked) -> None:
    """Wait with nothing any more: the conversation is cleared."""
    store(held, Awaited())


def rows(held: Locked) -> Any:
    """The conversation's row."""
    return Conversation.objects.using(door.alias()).filter(pk=held.pk)
