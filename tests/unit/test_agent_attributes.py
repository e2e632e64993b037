"""An agent that cannot work is refused where it is written."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.translation import gettext_lazy

from django_streams.chat import AIChatConsumer, CancelAfter, Debounce
from django_streams.chat.attributes import RULES, check_owner


def a_tool(city: str, turn: Any) -> str:
    return city


def a_method(self: Any, city: str) -> str:
    return city


def unheard_of(when: complex) -> str:
    return str(when)


WRONG: dict[str, list[Any]] = {
    "agent_name": ["", "a/b", "x" * 129, "a\nb", None, 7],
    "title": [None, 7],
    "resume": [None, 0, "yes"],
    "allow_anonymous": [None, 1],
    "message_concurrency": ["Queue", None, 0.75, Debounce, ["queue"]],
    "max_persisted_messages": [0, -1, 1.5, True, "10"],
    "on_interrupted": ["Continue", None, ["fail"]],
    "max_recovery_attempts": [-1, None, 1.0, True],
    "runner": ["", "Worker", 1],
    "tools": [None, "add", [7], {"add": len}],
    "max_tool_steps": [0, -1, None, 1.5, True],
    "stall_timeout": [0, -1, float("nan"), float("inf"), "5", True],
    "when_unwatched": ["cancel", None, 30, CancelAfter],
}
RIGHT: dict[str, list[Any]] = {
    "agent_name": ["a", "x" * 128, "über"],
    "title": ["", gettext_lazy("Help")],
    "resume": [True, False],
    "allow_anonymous": [True, False],
    "message_concurrency": ["queue", "latest", "merge", "drop", Debounce()],
    "max_persisted_messages": [None, 1, 10_000],
    "on_interrupted": ["continue", "restart", "fail"],
    "max_recovery_attempts": [0, 5],
    "tools": [(), [], [a_tool], (a_tool,)],
    "max_tool_steps": [1, 50],
    "runner": [None, "inprocess", "worker", "django.tasks", "celery"],
    "stall_timeout": [None, 0.5, 60],
    "when_unwatched": ["continue", CancelAfter(0), CancelAfter(30)],
}


def pairs(table: dict[str, list[Any]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in table.items() for value in values]


def make(**members: Any) -> type[AIChatConsumer]:
    return type("Sample", (AIChatConsumer,), members)


@pytest.mark.parametrize(("name", "value"), pairs(WRONG))
def test_a_wrong_value_is_named_with_its_attribute_and_its_class(
    name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=f"^{name} of Sample is ") as caught:
        make(**{name: value})
    assert repr(value) in str(caught.value)
    assert RULES[name][1] in str(caught.value)


@pytest.mark.parametrize(("name", "value"), pairs(RIGHT))
def test_what_may_be_is_taken(name: str, value: Any) -> None:
    assert getattr(make(**{name: value}), name) == value


def test_a_wrong_value_of_a_base_class_is_found_too() -> None:
    class Base:
        resume = "always"

    with pytest.raises(ValueError, match="resume"):
        type("Sample", (Base, AIChatConsumer), {})


@pytest.mark.parametrize(
    ("tools", "why"),
    [
        ([a_tool, a_tool], "two tools named 'a_tool'"),
        ([unheard_of], "the parameter 'when' of the tool unheard_of"),
        ([a_method], "a_method has a parameter self"),
        ([lambda: 1], "'<lambda>' cannot be the name of a tool"),
    ],
)
def test_tools_that_no_model_could_call_are_refused(tools: list[Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"^tools of Sample: .*{why}"):
        make(tools=tools)


def test_every_attribute_of_an_agent_has_a_rule_and_is_tried() -> None:
    from django_streams.chat.agent import Agent

    named = {name for name in Agent.__annotations__ if not name.startswith("_")}
    assert named <= set(RULES)
    assert named == set(WRONG) == set(RIGHT)


@pytest.mark.parametrize("value", [7, b"u:1", "x" * 129, ["u:1"]])
def test_an_owner_that_is_no_key_is_named_with_the_hook(value: Any) -> None:
    with pytest.raises(ValueError, match="conversation_owner of Sample returned"):
        check_owner(make(), value)


@pytest.mark.parametrize("value", [None, "", "u:1", "team:7", "x" * 128])
def test_an_owner_key_is_taken_as_it_is(value: Any) -> None:
    assert check_owner(make(), value) == value
