"""A reply as a client puts it together from the frames of its turn."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, TypeVar

from ..messages import Accumulator
from .errors import ClientError

Frame = dict[str, Any]
UIMessage = dict[str, Any]
Part = dict[str, Any]
Outcome = Literal["completed", "aborted", "error", "skipped"]

T = TypeVar("T")


class Wait(Protocol):
    """How a reply waits: by its client, whose time limit it is."""

    def __call__(
        self, what: str, look: Callable[[], T | None], timeout: float | None = None
    ) -> Awaitable[T]: ...


class Reply:
    """One turn's reply, as far as it came. Made by :class:`AgentClient`."""

    def __init__(
        self, request_id: str, wait: Wait, *, base: Callable[[], UIMessage | None]
    ) -> None:
        self.request_id = request_id
        self.outcome: Outcome | None = None
        """How the turn ended; None as long as it has not."""
        self.error: str | None = None
        """What a client was told of an error."""
        self.frames: list[Frame] = []
        """All frames of the turn, replays included, in order."""
        self.chunks: list[dict[str, Any]] = []
        """The reply's chunks, each once: a replay begins anew."""
        self.continuation = False
        self.replayed = 0
        """How many of the chunks came in a replay."""
        self.attached = False
        self.awaited = False
        self.accepting = False
        """Whether an offer was accepted that has not been answered yet."""
        self._wait = wait
        self._base = base
        self._message: Accumulator | None = None
        self._caught_up = False

    def __repr__(self) -> str:
        state = self.outcome or "running"
        return f"<reply {self.request_id!r}: {state}, {self.text!r}>"

    @property
    def done(self) -> bool:
        """Whether the turn has ended."""
        return self.outcome is not None

    @property
    def message(self) -> UIMessage | None:
        """The assistant's UIMessage so far; None before the first chunk."""
        return None if self._message is None else self._message.message

    @property
    def parts(self) -> list[Part]:
        """The message's parts so far."""
        message = self.message
        parts: list[Part] = [] if message is None else message["parts"]
        return parts

    @property
    def text(self) -> str:
        """The text parts so far, joined."""
        return "".join(p["text"] for p in self.parts if p.get("type") == "text")

    def tool(self, name: str) -> Part:
        """The last part of a call of the tool *name*; ``LookupError`` without one."""
        for part in reversed(self.parts):
            dynamic = part.get("type") == "dynamic-tool" and part.get("toolName")
            if name in (dynamic, str(part.get("type")).removeprefix("tool-")):
                return part
        kinds = [part.get("type") for part in self.parts]
        raise LookupError(f"no call of the tool {name!r} among the parts {kinds}")

    async def ended(self, timeout: float | None = None) -> Reply:
        """Wait for the end of the turn, however it ends; the reply itself."""
        return await self._wait(
            f"the end of the reply {self.request_id!r}",
            lambda: self if self.done else None,
            timeout,
        )

    async def says(self, text: str, timeout: float | None = None) -> Reply:
        """Wait until the reply contains *text*; the reply itself.

        Fails as soon as the turn ends without having said it.
        """

        def look() -> bool | None:
            return text in self.text or (False if self.done else None)

        what = f"{text!r} in the reply {self.request_id!r}"
        if not await self._wait(what, look, timeout):
            raise ClientError(
                f"the reply {self.request_id!r} ended ({self.outcome}) without "
                f"saying {text!r}; it said {self.text!r}"
                + (f" and the error {self.error!r}" if self.error else "")
            )
        return self

    async def caught_up(self, timeout: float | None = None) -> Reply:
        """Wait until all that was stored has been replayed; the reply itself."""
        return await self._wait(
            f"the end of the replay of {self.request_id!r}",
            lambda: self if self._caught_up or self.done else None,
            timeout,
        )

    def take(self, frame: Frame) -> None:
        """Take a response frame of this turn, as the official client does."""
        self.frames.append(frame)
        self.continuation = self.continuation or bool(frame.get("continuation"))
        body, replay = frame.get("body") or "", bool(frame.get("replay"))
        if replay and self.done:
            # Told already: by the transcript, or over an earlier socket.
            return
        if replay:
            self.accepting = False
        elif self.accepting and (frame.get("done") or frame.get("error")):
            self._take_stored()
        if frame.get("error"):
            self.outcome, self.error = "error", body
        elif frame.get("done"):
            self._end(frame.get("outcome"))
        elif body:
            self._apply(json.loads(body), replay)
        if frame.get("replayComplete"):
            self._caught_up = True

    def _take_stored(self) -> None:
        """It ended before it was accepted: the transcript before the end has it."""
        self.accepting = False
        stored = self._base()
        if self._message is None and stored is not None:
            self._message = Accumulator(stored["id"], base=stored)

    def _end(self, outcome: str | None) -> None:
        if outcome == "recovering":
            # It is begun anew: the offer that follows brings another log.
            self._forget()
            self.attached = False
        elif self.outcome is None:
            self.outcome = outcome or "completed"  # type: ignore[assignment]

    def _apply(self, chunk: dict[str, Any], replay: bool) -> None:
        if replay and chunk["type"] == "start":
            self._forget()
        if self._message is None:
            base = self._base() if self.continuation else None
            own = base["id"] if base else chunk.get("messageId", self.request_id)
            self._message = Accumulator(own, base=base)
        self.replayed += replay
        self.chunks.append(chunk)
        self._message.apply(chunk)

    def _forget(self) -> None:
        self._message = None
        self.chunks = []
        self.replayed = 0
        self._caught_up = False
