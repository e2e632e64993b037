"""A stored reply as a model is told of it: step by step, each call with its result.

Providers refuse a call without a result and a result without its call, so what
has no result is left out, and a denial is a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .parts import Part, UIMessage, as_object, is_tool, parts_of, tool_name, truthy

DENIED_TEXT = "Tool call execution denied."
"""The result of a call that somebody refused without saying why."""


@dataclass(frozen=True, slots=True)
class Result:
    """A call with what came of it."""

    call_id: str
    name: str
    input: dict[str, Any]
    output: Any
    """A JSON value; of a failed call the text that says why."""
    failed: bool
    part: Part

    @property
    def provided(self) -> bool:
        """Whether the provider has run it itself."""
        return truthy(self.part.get("providerExecuted"))

    @property
    def text(self) -> str:
        """The output as text: a string is itself, the rest is JSON."""
        if isinstance(self.output, str):
            return self.output
        return json.dumps(self.output, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Step:
    """What was said, and the calls that were made and answered, in order."""

    content: list[Part | Result] = field(default_factory=list)

    @property
    def said(self) -> list[Part]:
        """The parts that are no calls."""
        return [one for one in self.content if not isinstance(one, Result)]

    @property
    def results(self) -> list[Result]:
        return [one for one in self.content if isinstance(one, Result)]


def steps(message: UIMessage) -> Iterator[Step]:
    """The steps of a message, without empty ones.

    What is said behind a result, in the same step, was said with knowledge of it
    and is a step of its own; not so behind one of the provider's own tools.
    """
    step = Step()
    for part in parts_of(message):
        if part.get("type") == "step-start":
            if step.content:
                yield step
            step = Step()
        elif not is_tool(part):
            if part.get("type") in _SAYING and _answered(step):
                yield step
                step = Step()
            step.content.append(part)
        elif (result := result_of(part)) is not None:
            step.content.append(result)
    if step.content:
        yield step


_SAYING = ("text", "reasoning")


def _answered(step: Step) -> bool:
    return any(not one.provided for one in step.results)


def result_of(part: Part) -> Result | None:
    """What came of a call; None while nothing has."""
    call_id = part.get("toolCallId")
    if not isinstance(call_id, str):
        return None
    approval = part.get("approval")
    approval = approval if isinstance(approval, dict) else {}
    match part.get("state"):
        case "output-available":
            output, failed = part.get("output"), False
        case "output-error":
            output, failed = str(part.get("errorText", "")), True
        case "output-denied":
            output, failed = approval.get("reason") or DENIED_TEXT, True
        case "approval-responded" if approval.get("approved") is False:
            output, failed = approval.get("reason") or DENIED_TEXT, True
        case _:
            return None
    given = as_object(part.get("input"))
    return Result(call_id, tool_name(part), given, output, failed, part)
