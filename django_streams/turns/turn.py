"""What ``on_chat_message`` gets: one turn, as the user of the app sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..messages.steps import Result
from ..tools import ToolSet
from .records import ConversationRef, TurnRecord, UIMessage

if TYPE_CHECKING:
    from .toolbox import Toolbox


class Turn:
    """One run of the agent: what was asked, by whom, and whether to stop."""

    def __init__(
        self,
        record: TurnRecord,
        conversation: ConversationRef,
        messages: list[UIMessage],
        user: Any,
        *,
        renew: Callable[[], Awaitable[None]],
    ) -> None:
        self.request_id = record.request_id
        self.conversation = conversation
        """Its ``agent``, ``name`` and ``owner``."""
        self.messages = messages
        """UIMessage dicts, oldest first; the last is what is to be answered."""
        self.user = user
        """Who asked; an ``AnonymousUser`` for a visitor."""
        self.body = record.body or {}
        """The custom keys of the request, None without any."""
        self.client_tools = record.client_tools
        self.trigger = record.trigger
        """``"submit-message"`` or ``"regenerate-message"``."""
        self.continuation = record.continuation
        self.attempt = record.attempt
        """1 for the first run."""
        self.partial: UIMessage | None = None
        """What an interrupted attempt had already stored."""
        self.cancelled = asyncio.Event()
        """Set when somebody asked to stop; the handler is cancelled as well."""
        self.tools = ToolSet()
        """The agent's; ``turn.tools.to_openai()`` is what models are told."""
        self.max_tool_steps = 1
        """How often a model is to be asked, as the agent says."""
        self._renew = renew
        self._toolbox: Toolbox | None = None

    def equip(self, toolbox: Toolbox, tools: ToolSet, *, steps: int) -> None:
        """Give it the tools of its agent."""
        self._toolbox, self.tools, self.max_tool_steps = toolbox, tools, steps

    def renew_message(self, message: UIMessage) -> None:
        """A message of the transcript has changed since the turn began."""
        self.messages[:] = [
            message if one.get("id") == message["id"] else one for one in self.messages
        ]

    @property
    def text(self) -> str:
        """The text of the last message of the user."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return "".join(
                    part["text"]
                    for part in message.get("parts", ())
                    if part.get("type") == "text" and isinstance(part.get("text"), str)
                )
        return ""

    async def sleep(self, seconds: float) -> None:
        """Wait, or return early when the turn is to stop."""
        try:
            async with asyncio.timeout(seconds):
                await self.cancelled.wait()
        except TimeoutError:
            pass

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        call_id: str | None = None,
    ) -> Result | None:
        """Call one of :attr:`tools`, as part of the reply; what came of it.

        None: somebody must allow it first, which the reply now asks for. A call
        whose *call_id* the reply has with a result is not made again, and one
        that is being made is waited for. Raises ``ValueError`` for a tool that
        the agent does not have, and in a tool for its own call; what the tool
        raises is in the result. Cancelled: an ``async def`` is cancelled too, a
        plain function runs to its end, and the call ends as an error.
        """
        if self._toolbox is None:
            raise ValueError(f"the agent has no tool named {name!r}; it has none")
        return await self._toolbox.call(name, arguments or {}, call_id)

    def result(self, call_id: str) -> Result | None:
        """What came of a tool call of this reply, also of one that was yielded as
        a chunk, or else of an earlier one; None while nothing has, as when
        somebody must allow it."""
        return None if self._toolbox is None else self._toolbox.result(call_id)

    async def heartbeat(self) -> None:
        """Say that a handler which yields nothing for long is alive."""
        await self._renew()


def to_answer(messages: list[UIMessage], record: TurnRecord) -> list[UIMessage]:
    """The transcript as the turn's handler reads it: its question comes last.

    Messages are stored when they are sent, so the answer to an earlier turn may
    stand behind this turn's question, and questions of later turns may be there
    too: those are not this turn's business.
    """
    if not record.origin_ids:
        return messages
    last = record.origin_ids[-1]
    at = next((i for i, m in enumerate(messages) if m.get("id") == last), None)
    if at is None:
        return messages
    answers = [m for m in messages[at + 1 :] if m.get("role") != "user"]
    return [*messages[:at], *answers, messages[at]]
