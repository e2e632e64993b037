"""What a person, or the page, answers to the calls of a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..chat.protocol import TOOL_APPROVAL, TOOL_RESULT
from ..messages.answers import (
    Change,
    changed,
    is_half_answered,
    tool_approval,
    tool_result,
)
from .errors import ClientError
from .reply import Frame, Part, Reply, UIMessage
from .tab import Tab

_NOTHING: Final = "nothing follows"


class Answering(Tab):
    """The part of :class:`AgentClient` that answers tool calls.

    A *call* is the part that :meth:`Reply.tool` returns, or its ``toolCallId``.
    :class:`ClientError` is raised for one that this client has not seen.

    Each method returns the reply that follows, at its end: the continuation that
    the agent begins once all calls of its newest reply are answered. It returns
    None where nothing follows: other calls still wait, the call was answered
    before, or the agent had nothing to say. With ``continues=False`` none is
    asked for; with ``wait=False`` the method returns when the answer was taken,
    and :meth:`AgentClient.next_reply` gives the continuation as it begins.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._given: list[Change] = []
        self._wanted = False
        """Whether an answer that asked for a continuation waits for others."""

    async def answer_tool(
        self,
        call: Part | str,
        output: Any = None,
        *,
        client_tools: list[Any] | None = None,
        continues: bool = True,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Reply | None:
        """Say what a tool returned that the page has run, as ``addToolOutput``.

        *client_tools* take the place of those that came with the message.
        """
        call_id, name = self._find(call)
        frame = {"type": TOOL_RESULT, "toolName": name, "output": output}
        if client_tools is not None:
            frame["clientTools"] = client_tools
        change = tool_result(call_id, output)
        return await self._tell(call_id, frame, change, continues, wait, timeout)

    async def fail_tool(
        self,
        call: Part | str,
        error_text: str | None = None,
        *,
        continues: bool = False,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Reply | None:
        """Say that a tool of the page failed; the model is told *error_text*.

        A failure asks for no continuation unless *continues* is given, as with
        the hook. It lets one begin that another answer asked for.
        """
        call_id, name = self._find(call)
        frame = {"type": TOOL_RESULT, "toolName": name, "state": "output-error"}
        if error_text is not None:
            frame["errorText"] = error_text
        change = tool_result(call_id, failed=True, error_text=error_text)
        return await self._tell(call_id, frame, change, continues, wait, timeout)

    async def approve(
        self,
        call: Part | str,
        *,
        continues: bool = True,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Reply | None:
        """Allow a call that asks for it."""
        return await self._decide(call, True, continues, wait, timeout)

    async def deny(
        self,
        call: Part | str,
        *,
        continues: bool = True,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Reply | None:
        """Refuse a call that asks to be allowed."""
        return await self._decide(call, False, continues, wait, timeout)

    async def disconnect(self, code: int = 1001) -> None:
        """Close the socket and stay in the test: turns go on without it."""
        self._forget_answers()
        await super().disconnect(code)

    def _forget_answers(self) -> None:
        self._given, self._wanted = [], False

    async def _decide(
        self,
        call: Part | str,
        approved: bool,
        continues: bool,
        wait: bool,
        timeout: float | None,
    ) -> Reply | None:
        call_id, _ = self._find(call)
        frame = {"type": TOOL_APPROVAL, "approved": approved}
        change = tool_approval(call_id, approved)
        return await self._tell(call_id, frame, change, continues, wait, timeout)

    async def _tell(
        self,
        call_id: str,
        frame: Frame,
        change: Change,
        continues: bool,
        wait: bool,
        timeout: float | None,
    ) -> Reply | None:
        known, released = set(self.replies), self._released
        news = changed(self._answered(), change) is not None
        self._given.append(change)
        await self.send_frame(
            {**frame, "toolCallId": call_id, "autoContinue": continues}
        )
        await self._handled()
        self._wanted = self._wanted or (continues and news)
        if not (wait and news and self._wanted):
            return None

        def look() -> Reply | str | None:
            for request_id, reply in self.replies.items():
                if request_id not in known and (reply.attached or reply.continuation):
                    return reply
            if self._released > released:
                return _NOTHING
            over = all(reply.done for reply in self.replies.values())
            return _NOTHING if over and is_half_answered(self._answered()) else None

        found = await self._wait(f"what follows the answer to {call_id!r}", look)
        if not isinstance(found, Reply):
            self._wanted = is_half_answered(self._answered())
            return None
        self._forget_answers()
        self._met.add(found.request_id)
        return await found.ended(timeout)

    def _answered(self) -> list[UIMessage]:
        """The messages, with the answers of which the news may be on its way."""
        messages = self._shown()
        for change in self._given:
            new = changed(messages, change)
            if new is not None:
                messages = [new if m["id"] == new["id"] else m for m in messages]
        return messages

    def _shown(self) -> list[UIMessage]:
        """The messages, and what is being written."""
        running = [r.message for r in self.replies.values() if not r.done]
        shown = {m["id"]: m for m in (*self.transcript, *running) if m is not None}
        return list(shown.values())

    def _find(self, call: Part | str) -> tuple[str, str]:
        """The id and the tool of a call."""
        wanted = call.get("toolCallId") if isinstance(call, Mapping) else call
        calls = [
            part
            for message in self._shown()
            for part in message.get("parts", ())
            if "toolCallId" in part
        ]
        for part in calls:
            if part["toolCallId"] == wanted:
                kind = str(part.get("type")).removeprefix("tool-")
                return part["toolCallId"], part.get("toolName") or kind
        ids = [part["toolCallId"] for part in calls]
        raise ClientError(f"no call {wanted!r} was seen; those that were: {ids}")
