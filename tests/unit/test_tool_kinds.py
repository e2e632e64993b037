"""What the parameters and results of a tool may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pytest

from django_streams.tools import Tool, ToolArgumentError, to_json, tool


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Place:
    city: str
    zip_code: int = 0
    tags: list[str] = field(default_factory=list)
    size: int = field(init=False, default=7)


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("number must be even")


class Window(TypedDict):
    first: int
    last: NotRequired[int]


class Loose(TypedDict, total=False):
    first: Required[int]
    last: int


PLACE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "zip_code": {"type": "integer", "default": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    },
    "required": ["city"],
    "additionalProperties": False,
}
STRING = {"type": "string"}

# An annotation, its schema, values with what the function gets, and values that
# are refused with the problem that is told.
KINDS: list[
    tuple[Any, dict[str, Any], list[tuple[Any, Any]], list[tuple[Any, str]]]
] = [
    (
        str,
        STRING,
        [("x", "x")],
        [(1, "$.value is 1, not a string"), (None, "$.value is null, not a string")],
    ),
    (
        int,
        {"type": "integer"},
        [(3, 3), (3.0, 3)],
        [
            (3.5, "$.value is 3.5, not an integer"),
            (True, "$.value is true, not an integer"),
            ("3", '$.value is "3", not an integer'),
        ],
    ),
    (
        float,
        {"type": "number"},
        [(3, 3.0), (0.5, 0.5)],
        [
            ("x", '$.value is "x", not a number'),
            (False, "$.value is false, not a number"),
        ],
    ),
    (bool, {"type": "boolean"}, [(True, True)], [(1, "$.value is 1, not a boolean")]),
    (None, {"type": "null"}, [(None, None)], [(0, "$.value is 0, not null")]),
    (Any, {}, [({"a": [1]}, {"a": [1]}), (None, None)], []),
    (
        list,
        {"type": "array"},
        [([1, "a"], [1, "a"])],
        [({}, "$.value is {}, not an array")],
    ),
    (
        list[str],
        {"type": "array", "items": STRING},
        [(["a"], ["a"])],
        [
            (
                ["a", 1, None],
                "$.value[1] is 1, not a string; $.value[2] is null, not a string",
            )
        ],
    ),
    (Sequence[int], {"type": "array", "items": {"type": "integer"}}, [([], [])], []),
    (
        set[str],
        {"type": "array", "items": STRING, "uniqueItems": True},
        [(["a", "a"], {"a"})],
        [],
    ),
    (
        set[Any],
        {"type": "array", "uniqueItems": True},
        [([1], {1})],
        [([{}], "$.value cannot be a set: unhashable type: 'dict'")],
    ),
    (
        tuple[int, ...],
        {"type": "array", "items": {"type": "integer"}},
        [([1, 2], (1, 2))],
        [],
    ),
    (
        tuple[int, str],
        {
            "type": "array",
            "prefixItems": [{"type": "integer"}, STRING],
            "minItems": 2,
            "maxItems": 2,
        },
        [([1, "a"], (1, "a"))],
        [([1], "$.value is [1], not an array of 2")],
    ),
    (
        dict,
        {"type": "object", "additionalProperties": True},
        [({"a": 1}, {"a": 1})],
        [([], "$.value is [], not an object")],
    ),
    (
        dict[str, int],
        {"type": "object", "additionalProperties": {"type": "integer"}},
        [({"a": 1}, {"a": 1})],
        [({"a": "b"}, '$.value.a is "b", not an integer')],
    ),
    (
        Mapping[str, Any],
        {"type": "object", "additionalProperties": True},
        [({}, {})],
        [],
    ),
    (
        Literal["c", "f"],
        {"type": "string", "enum": ["c", "f"]},
        [("c", "c")],
        [("k", '$.value is "k", not one of "c", "f"')],
    ),
    (
        Literal[1, "a", None],
        {"enum": [1, "a", None]},
        [(1, 1), (None, None)],
        [(True, '$.value is true, not one of 1, "a", null')],
    ),
    (
        Optional[int],  # noqa: UP045
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        [(1, 1), (None, None)],
        [("x", '$.value is "x", not an integer')],
    ),
    (
        int | str,
        {"anyOf": [{"type": "integer"}, STRING]},
        [(1, 1), ("a", "a")],
        [([], "$.value is [], not an integer or a string")],
    ),
    (
        Unit,
        {"type": "string", "enum": ["c", "f"]},
        [("f", Unit.FAHRENHEIT)],
        [("FAHRENHEIT", '$.value is "FAHRENHEIT", not one of "c", "f"')],
    ),
    (
        Level,
        {"type": "integer", "enum": [1, 2]},
        [(2, Level.HIGH)],
        [(3, "$.value is 3, not one of 1, 2")],
    ),
    (
        Annotated[str, "the city"],
        STRING | {"description": "the city"},
        [("x", "x")],
        [],
    ),
    (
        Place,
        PLACE,
        [
            ({"city": "X"}, Place("X")),
            ({"city": "X", "tags": ["t"]}, Place("X", tags=["t"])),
        ],
        [
            (
                {"zip_code": "1"},
                "$.value.city is missing: it must be a string; "
                '$.value.zip_code is "1", not an integer',
            ),
            (
                {"city": "X", "size": 1},
                "$.value.size is unknown: there is city, zip_code, tags",
            ),
        ],
    ),
    (
        Even,
        {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
            "additionalProperties": False,
        },
        [({"number": 2}, Even(2))],
        [({"number": 1}, "$.value is refused: number must be even")],
    ),
    (
        Window,
        {
            "type": "object",
            "properties": {"first": {"type": "integer"}, "last": {"type": "integer"}},
            "required": ["first"],
            "additionalProperties": False,
        },
        [
            ({"first": 1}, {"first": 1}),
            ({"first": 1, "last": 2}, {"first": 1, "last": 2}),
        ],
        [({"last": 2}, "$.value.first is missing: it must be an integer")],
    ),
]


def test_a_member_may_be_required_where_the_others_are_not() -> None:
    schema = taking(Loose).parameters["properties"]["value"]
    assert schema["required"] == ["first"]


def taking(annotation: Any) -> Tool[..., Any]:
    """A tool with one parameter of that annotation, which returns it."""

    def echo(value: Any) -> Any:
        return value

    echo.__annotations__["value"] = annotation
    return tool(echo)


@pytest.mark.parametrize("kind", KINDS, ids=[str(kind[0]) for kind in KINDS])
def test_an_annotation_is_a_schema_and_a_check(kind: Any) -> None:
    annotation, schema, taken, refused = kind
    made = taking(annotation)
    assert made.parameters["properties"] == {"value": schema}
    assert made.parameters["required"] == ["value"]
    for sent, got in taken:
        result = made.arguments({"value": sent})["value"]
        assert (type(result), result) == (type(got), got)
    for sent, problem in refused:
        with pytest.raises(ToolArgumentError) as raised:
            made.arguments({"value": sent})
        assert "; ".join(raised.value.problems) == problem


def test_an_object_may_hold_objects_of_its_own_kind() -> None:
    made = taking(Node)
    node = {"$ref": "#/$defs/Node"}
    assert made.parameters["properties"] == {"value": node}
    children = {"type": "array", "items": node, "default": []}
    assert made.parameters["$defs"]["Node"]["properties"]["children"] == children
    sent = {"name": "a", "children": [{"name": "b"}]}
    assert made.arguments({"value": sent}) == {"value": Node("a", [Node("b")])}


def test_arguments_that_are_nested_beyond_reason_are_refused() -> None:
    sent: dict[str, Any] = {"name": "a"}
    for _ in range(2_000):
        sent = {"name": "a", "children": [sent]}
    with pytest.raises(ToolArgumentError, match="nested too deeply"):
        taking(Node).arguments({"value": sent})


@pytest.mark.parametrize(
    ("annotation", "problem"),
    [
        (bytes, "cannot be told to a model"),
        (dict[int, str], "keys that are not str"),
        (list[complex], "cannot be told to a model"),
        (Enum("Odd", {"A": (1, 2)}), "not JSON"),
    ],
)
def test_what_json_has_nothing_for_is_refused_when_the_tool_is_made(
    annotation: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match="the parameter 'value' of the tool echo") as no:
        taking(annotation)
    assert problem in str(no.value)


# Results


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Place("X"), {"city": "X", "zip_code": 0, "tags": [], "size": 7}),
        ({"a": (1, Unit.CELSIUS)}, {"a": [1, "c"]}),
        ({Unit.CELSIUS: 1}, {"c": 1}),
        ({2, 1}, [1, 2]),
        (Level.HIGH, 2),
        (None, None),
    ],
)
def test_a_result_is_told_in_json(value: Any, expected: Any) -> None:
    assert to_json(value) == expected


@pytest.mark.parametrize("value", [object(), b"x", {1: 2}, Place])
def test_a_result_that_json_has_nothing_for_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="JSON"):
        to_json(value)
