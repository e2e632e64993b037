"""Python functions as tools: names, arguments, approval."""

from __future__ import annotations

import inspect
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import pytest

from django_streams.tools import Tool, ToolArgumentError, ToolSet, tool

if TYPE_CHECKING:
    from django_streams.turns.turn import Turn


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@tool
async def weather(
    city: Annotated[str, "where"], turn: Turn, unit: Unit = Unit.CELSIUS, days: int = 1
) -> str:
    """The weather of a city.

    As of now.
    """
    return f"{city} {unit.value} {days} {turn}"


def test_a_function_becomes_a_tool_with_its_docstring_and_its_defaults() -> None:
    assert weather.schema == {
        "name": "weather",
        "description": "The weather of a city.\n\nAs of now.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "where"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "days": {"type": "integer", "default": 1},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }


async def test_a_call_gets_the_turn_and_what_was_sent() -> None:
    arguments = weather.arguments({"city": "X", "unit": "f"}, turn="the turn")
    assert arguments == {"city": "X", "unit": Unit.FAHRENHEIT, "turn": "the turn"}
    assert await weather(**arguments) == "X f 1 the turn"
    assert inspect.iscoroutinefunction(weather.function)


def test_a_model_cannot_send_the_turn() -> None:
    with pytest.raises(ToolArgumentError, match=r"\$\.turn is unknown"):
        weather.arguments({"city": "X", "turn": "mine"})


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ToolArgumentError) as raised:
        weather.arguments({"unit": "k", "days": "two", "zip": 1})
    assert str(raised.value) == (
        "Invalid arguments for weather: $.city is missing: it must be a string; "
        '$.unit is "k", not one of "c", "f"; $.days is "two", not an integer; '
        "$.zip is unknown: there is city, unit, days."
    )


@pytest.mark.parametrize("sent", [None, [], "x", 7])
def test_arguments_are_an_object(sent: Any) -> None:
    with pytest.raises(ToolArgumentError, match="not an object"):
        weather.arguments(sent)


def test_a_long_value_is_cut_in_the_problem() -> None:
    with pytest.raises(ToolArgumentError) as raised:
        weather.arguments({"city": "X", "days": "x" * 1000})
    assert len(str(raised.value)) < 200


def test_a_parameter_without_an_annotation_takes_anything() -> None:
    def plain(a, b=None):  # type: ignore[no-untyped-def]
        return a

    assert tool(plain).parameters["properties"] == {"a": {}, "b": {"default": None}}


def test_a_function_without_parameters_takes_an_empty_object() -> None:
    @tool
    def now() -> str:
        return "now"

    assert now.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert now.arguments({}) == {}
    assert now.description == ""


def test_parameters_that_have_no_name_are_refused() -> None:
    def positional(a: int, /) -> None: ...

    def many(*args: int) -> None: ...

    def named(**kwargs: int) -> None: ...

    for function in (positional, many, named):
        with pytest.raises(TypeError, match="cannot be passed by name"):
            tool(function)


def test_an_annotation_that_names_nothing_is_explained() -> None:
    def lost(value: Any) -> None: ...

    lost.__annotations__["value"] = "Nowhere"
    with pytest.raises(TypeError, match="importable at run time"):
        tool(lost)


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a\n"])
def test_a_name_that_a_provider_refuses_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a tool"):
        Tool(lambda: None, name=name)


def test_name_and_description_may_be_given() -> None:
    made = tool(name="other", description="What it does.")(lambda city="": city)
    assert (made.name, made.description) == ("other", "What it does.")
    assert made("X") == "X"


# Approval


def test_no_approval_is_needed_unless_it_is_said() -> None:
    assert weather.approval_for({}) is False
    always = tool(name="x", needs_approval=True)(lambda: None)
    assert always.approval_for({}) is True


def test_a_predicate_is_asked_with_the_parameters_that_it_has() -> None:
    def costs(amount: int, turn: Any) -> bool:
        return amount > 10 and turn == "t"

    @tool(needs_approval=costs)
    def pay(amount: int, to: str, turn: Any) -> None: ...

    sent = {"amount": 11, "to": "X"}
    assert pay.approval_for(pay.arguments(sent, turn="t")) is True
    assert pay.approval_for(pay.arguments(sent | {"amount": 1}, turn="t")) is False


async def test_a_predicate_may_be_async_and_take_everything() -> None:
    async def always(**arguments: Any) -> bool:
        return arguments == {"amount": 1}

    @tool(needs_approval=always)
    def pay(amount: int) -> None: ...

    answer = pay.approval_for({"amount": 1})
    assert not isinstance(answer, bool)
    assert await answer


# Sets of tools


def test_tools_are_found_by_their_names() -> None:
    def plain() -> None: ...

    tools = ToolSet([weather, plain])
    assert len(tools) == 2 and "plain" in tools
    assert tools.get("weather") is weather and tools.get("x") is None
    assert [one["name"] for one in tools.schemas] == ["weather", "plain"]
    with pytest.raises(ValueError, match="two tools named 'plain'"):
        ToolSet([plain, plain])
