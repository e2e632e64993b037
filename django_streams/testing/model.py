"""A model without a key, whose every answer the test decides.

Put it where the agent's own model is, for instance with ``monkeypatch`` or
``unittest.mock.patch``. It is called with what the model is called with, and
what it returns can be iterated over and yielded from, as a model's stream::

    model = ScriptedModel("Hello!", "And goodbye.")
    model.answer("It is sunny.", when="weather")

It comes word by word and takes no time; a :class:`Pause` holds it until the
test says go. Pure: it needs no Django.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from ..exceptions import PublicError
from ..providers.scripted import words
from .errors import ClientError

Chunk: TypeAlias = dict[str, Any]

WITHIN = 10.0
"""Seconds for which a test waits until the model gets to a pause."""


class Pause:
    """A place in an answer at which the model waits for the test.

    ``await pause.reached()`` returns once the model stands here, ``pause.go()``
    lets it go on, now and whenever it comes here again.
    """

    def __init__(self) -> None:
        self._here = asyncio.Event()
        self._go = asyncio.Event()

    async def reached(self, timeout: float = WITHIN) -> None:
        """Wait until the model is here; :class:`ClientError` if it does not come."""
        try:
            async with asyncio.timeout(timeout):
                await self._here.wait()
        except TimeoutError:
            raise ClientError(
                f"waited {timeout:g} s, and the model did not come to its pause; "
                "was it asked, and was its answer the one with the pause?"
            ) from None

    def go(self) -> None:
        """Let the model go on. From the event loop it runs on."""
        self._go.set()

    async def _pass(self) -> None:
        self._here.set()
        await self._go.wait()


@dataclass(eq=False)
class Asked:
    """One call of the model: what it was asked, and what it said."""

    text: str
    """The text of the last message of the user."""
    messages: list[Any]
    """The messages as they were handed over: UI messages, or a provider's."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    said: list[str | Chunk] = field(default_factory=list)
    """What was taken of the answer so far."""
    ended: bool = False
    """The answer was taken to its end: neither cancelled nor failed."""


class NoAnswer(PublicError):
    """The model was asked something that it has no answer to.

    A :class:`PublicError`, so that the reply's error says so.
    """


Item: TypeAlias = "str | Chunk | Pause | BaseException | type[BaseException]"
Piece: TypeAlias = "Item | Sequence[Piece]"
Make: TypeAlias = Callable[[Asked], Piece]
When: TypeAlias = "str | re.Pattern[str] | Callable[[Asked], bool]"


@dataclass(eq=False)
class _Answer:
    pieces: tuple[Piece | Make, ...]
    when: When | None
    times: int | None

    def fits(self, asked: Asked) -> bool:
        if self.when is None:
            return True
        if isinstance(self.when, str):
            return self.when.casefold() in asked.text.casefold()
        if isinstance(self.when, re.Pattern):
            return self.when.search(asked.text) is not None
        return bool(self.when(asked))

    def __repr__(self) -> str:
        return f"{self.pieces!r}" + (
            "" if self.when is None else f" when {self.when!r}"
        )


class ScriptedModel:
    """Answers by what it is asked, or else in order.

    *answers* are said one after the other, each once. :meth:`answer` adds more.
    """

    def __init__(self, *answers: Piece | Make) -> None:
        self.asked: list[Asked] = []
        """Every call, oldest first."""
        self._matching: list[_Answer] = []
        self._in_order: list[_Answer] = []
        for answer in answers:
            self.answer(answer)

    @property
    def left(self) -> int:
        """How many answers in order were not asked for yet."""
        return len(self._in_order)

    def answer(
        self,
        *pieces: Piece | Make,
        when: When | None = None,
        times: int | None = None,
    ) -> ScriptedModel:
        """Add an answer; returns the model.

        Its *pieces* come one after the other: a text word by word, a chunk as it
        is, a list of these (such as :func:`tool_call`), a :class:`Pause`, an
        exception, which is raised, or a function of :class:`Asked` that returns
        any of these.

        With *when* it is given whenever that fits: a text which the user's last
        message contains (in whatever case), a compiled pattern, or a function of
        :class:`Asked`; with *times* only so often. The one added last is tried
        first, and before those in order. Without *when* it is said once, in its
        turn.
        """
        if times is not None and (when is None or times < 1):
            raise ValueError("times is a number from 1, and goes with when=")
        for piece in pieces:
            _check(piece)
        if when is None:
            self._in_order.append(_Answer(pieces, None, 1))
        else:
            self._matching.insert(0, _Answer(pieces, when, times))
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Ask: with messages, a turn or a text, as the first or any argument.

        Raises :class:`NoAnswer` where it has none, while it is iterated over.
        """
        messages = _messages(args, kwargs)
        asked = Asked(_last_text(messages), messages, args, kwargs)
        self.asked.append(asked)
        return self._say(asked, self._choose(asked))

    async def complete(self, *args: Any, **kwargs: Any) -> str:
        """Ask, and get the texts of the answer at once, for agents that do."""
        items = [item async for item in self(*args, **kwargs)]
        return "".join(item for item in items if isinstance(item, str))

    def _choose(self, asked: Asked) -> _Answer | None:
        for answer in self._matching:
            if answer.times != 0 and answer.fits(asked):
                if answer.times is not None:
                    answer.times -= 1
                return answer
        return self._in_order.pop(0) if self._in_order else None

    async def _say(
        self, asked: Asked, answer: _Answer | None
    ) -> AsyncGenerator[Any, None]:
        if answer is None:
            given = ", ".join(map(repr, self._matching)) or "none"
            raise NoAnswer(
                f"the scripted model has no answer to {asked.text!r}: those in order "
                f"are used up, and of those with when= none fits ({given}); add one "
                "with model.answer(...)"
            )
        for piece in answer.pieces:
            for item in _items(piece, asked):
                if isinstance(item, Pause):
                    await item._pass()
                elif isinstance(item, BaseException | type):
                    raise item
                else:
                    asked.said.append(item)
                    yield item
        asked.ended = True


_numbers = count(1)


def tool_call(
    name: str,
    arguments: Mapping[str, Any],
    *,
    output: Any = ...,
    error: str | None = None,
    needs_approval: bool = False,
    call_id: str | None = None,
) -> list[Chunk]:
    """The chunks by which a model calls the tool *name*.

    With *output* or *error* the call has come to its end as well. With
    *needs_approval* it asks to be allowed; a tool of the agent that needs it asks
    by itself.
    """
    call_id = call_id or f"call-{next(_numbers)}"
    call = {"toolCallId": call_id, "toolName": name}
    chunks: list[Chunk] = [
        {"type": "tool-input-start", **call},
        {"type": "tool-input-available", **call, "input": dict(arguments)},
    ]
    if needs_approval:
        asks = {"type": "tool-approval-request", "approvalId": f"approval-{call_id}"}
        chunks.append({**asks, "toolCallId": call_id})
    if error is not None:
        end = {"type": "tool-output-error", "errorText": error}
        chunks.append({**end, "toolCallId": call_id})
    elif output is not ...:
        end = {"type": "tool-output-available", "output": output}
        chunks.append({**end, "toolCallId": call_id})
    return chunks


def _check(piece: Any) -> None:
    if isinstance(piece, str | dict | Pause | BaseException):
        return
    if isinstance(piece, type) and issubclass(piece, BaseException):
        return
    if isinstance(piece, list | tuple):
        for item in piece:
            _check(item)
    elif isinstance(piece, type) or not callable(piece):
        raise TypeError(
            f"{piece!r} is no piece of an answer: give a text, a chunk (a dict), a "
            "Pause, an exception, a list of these or a function that returns one"
        )


def _items(piece: Any, asked: Asked) -> list[Any]:
    if callable(piece) and not isinstance(piece, type):
        piece = piece(asked)
        _check(piece)
    if isinstance(piece, str):
        return list(words(piece))
    if isinstance(piece, list | tuple):
        return [item for part in piece for item in _items(part, asked)]
    return [piece]


def _messages(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    """The list of messages among the arguments, else a text, as a message."""
    values = [kwargs.get("messages"), *args, *kwargs.values()]
    values = [getattr(value, "messages", value) for value in values]
    for value in values:
        if isinstance(value, list | tuple):
            return list(value)
    for value in values:
        if isinstance(value, str):
            return [{"role": "user", "content": value}]
    return []


def _last_text(messages: list[Any]) -> str:
    for message in reversed(messages):
        if isinstance(message, str):
            return message
        if isinstance(message, Mapping) and message.get("role") == "user":
            content = message.get("parts", message.get("content"))
            if isinstance(content, str):
                return content
            parts = content if isinstance(content, list) else []
            return "".join(
                part["text"]
                for part in parts
                if isinstance(part, Mapping) and isinstance(part.get("text"), str)
            )
    return ""
