"""What a parameter may be: the schema that a model reads, and the check of what
it sends. Both are of one object, so that they cannot disagree.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

REQUIRED: Any = object()
"""The default of a field that has none."""

_SHOWN = 60
"""Characters of a wrong value that a problem shows."""


class Definitions:
    """The schemas of objects that hold objects of their own kind."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}
        self._open: list[Record] = []
        self._names: dict[int, str] = {}

    def of(self, record: Record) -> Schema:
        """The schema of an object: itself, or a reference where it is recursive."""
        if record in self._open:
            name = self._names.setdefault(id(record), self._free_name(record))
            return {"$ref": f"#/$defs/{name}"}
        self._open.append(record)
        schema = record.inner_schema(self)
        self._open.pop()
        name = self._names.get(id(record), "")
        if not name:
            return schema
        self.schemas[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def _free_name(self, record: Record) -> str:
        taken = self._names.values()
        names = (f"{record.name}{n or ''}" for n in range(len(taken) + 1))
        return next(name for name in names if name not in taken)


class Kind(ABC):
    """One kind of value."""

    @property
    @abstractmethod
    def noun(self) -> str:
        """What it is, in a sentence that says that something is not that."""

    @abstractmethod
    def schema(self, definitions: Definitions) -> Schema:
        """The JSON schema of it."""

    @abstractmethod
    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        """The Python value of a JSON *value*, which is at the path *at*.

        What is wrong with it is appended to *problems*; the result counts only
        if nothing was.
        """

    def _refuse(self, value: Any, at: str, problems: list[str]) -> None:
        problems.append(f"{at} is {shown(value)}, not {self.noun}")


@dataclass(frozen=True, slots=True)
class Anything(Kind):
    noun = "a JSON value"

    def schema(self, definitions: Definitions) -> Schema:
        return {}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Scalar(Kind):
    """``"string"``, ``"integer"``, ``"number"``, ``"boolean"`` or ``"null"``."""

    type: str

    @property
    def noun(self) -> str:
        return {"integer": "an integer", "null": "null"}.get(
            self.type, f"a {self.type}"
        )

    def schema(self, definitions: Definitions) -> Schema:
        return {"type": self.type}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        match self.type:
            case "string" if isinstance(value, str):
                return value
            case "boolean" if isinstance(value, bool):
                return value
            case "null" if value is None:
                return None
            # Models write whole numbers as 3.0; true is a number only in Python.
            case "integer" if _is_number(value) and value == math.floor(value):
                return int(value)
            case "number" if _is_number(value):
                return float(value)
        self._refuse(value, at, problems)
        return None


@dataclass(frozen=True, slots=True)
class Choice(Kind):
    """One of some values; *results* are what the function gets for them."""

    values: Sequence[Any]
    results: Sequence[Any]

    @property
    def noun(self) -> str:
        return "one of " + ", ".join(shown(value) for value in self.values)

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"enum": list(self.values)}
        types = {_type_of(value) for value in self.values}
        return {"type": types.pop(), **schema} if len(types) == 1 else schema

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        for known, result in zip(self.values, self.results, strict=True):
            if _type_of(value) == _type_of(known) and value == known:
                return result
        self._refuse(value, at, problems)
        return None


@dataclass(frozen=True, slots=True)
class ListOf(Kind):
    item: Kind
    make: Callable[[list[Any]], Any] = list
    unique: bool = False
    noun = "an array"

    def schema(self, definitions: Definitions) -> Schema:
        schema: Schema = {"type": "array"}
        if items := self.item.schema(definitions):
            schema["items"] = items
        return schema | ({"uniqueItems": True} if self.unique else {})

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        if not isinstance(value, list):
            self._refuse(value, at, problems)
            return None
        before = len(problems)
        items = [
            self.item.read(one, f"{at}[{i}]", problems) for i, one in enumerate(value)
        ]
        if len(problems) > before:
            return None
        try:
            return self.make(items)
        except TypeError as error:
            problems.append(f"{at} cannot be a set: {error}")
            return None


@dataclass(frozen=True, slots=True)
class TupleOf(Kind):
    items: Sequence[Kind]

    @property
    def noun(self) -> str:
        return f"an array of {len(self.items)}"

    def schema(self, definitions: Definitions) -> Schema:
        return {
            "type": "array",
            "prefixItems": [item.schema(definitions) for item in self.items],
            "minItems": len(self.items),
            "maxItems": len(self.items),
        }

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        if not isinstance(value, list) or len(value) != len(self.items):
            self._refuse(value, at, problems)
            return None
        return tuple(
            item.read(one, f"{at}[{i}]", problems)
            for i, (item, one) in enumerate(zip(self.items, value, strict=True))
        )


@dataclass(frozen=True, slots=True)
class MapOf(Kind):
    value: Kind
    noun = "an object"

    def schema(self, definitions: Definitions) -> Schema:
        values = self.value.schema(definitions)
        return {"type": "object", "additionalProperties": values or True}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        if not isinstance(value, dict):
            self._refuse(value, at, problems)
            return None
        return {
            key: self.value.read(one, f"{at}.{key}", problems)
            for key, one in value.items()
        }


@dataclass(frozen=True, slots=True)
class AnyOf(Kind):
    options: Sequence[Kind]

    @property
    def noun(self) -> str:
        return " or ".join(option.noun for option in self.options)

    def schema(self, definitions: Definitions) -> Schema:
        return {"anyOf": [option.schema(definitions) for option in self.options]}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        tried = []
        for option in self.options:
            found: list[str] = []
            result = option.read(value, at, found)
            if not found:
                return result
            tried.append((option, found))
        real = [
            found
            for option, found in tried
            if value is None or option != Scalar("null")
        ]
        if len(real) == 1:
            # "T or null": what is wrong with it as a T says more.
            problems += real[0]
        else:
            self._refuse(value, at, problems)
        return None


@dataclass(frozen=True, slots=True)
class Described(Kind):
    kind: Kind
    text: str

    @property
    def noun(self) -> str:
        return self.kind.noun

    def schema(self, definitions: Definitions) -> Schema:
        return self.kind.schema(definitions) | {"description": self.text}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        return self.kind.read(value, at, problems)


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    default: Any = REQUIRED
    """In JSON; REQUIRED where there is none, or none that JSON has a form for."""
    optional: bool = False


@dataclass(slots=True, eq=False)
class Record(Kind):
    """An object with known members; *make* is called with them by name."""

    name: str
    make: Callable[..., Any]
    fields: list[Field] = field(default_factory=list)
    """Filled after it is made: it may hold records of its own kind."""
    noun = "an object"

    def schema(self, definitions: Definitions) -> Schema:
        return definitions.of(self)

    def inner_schema(self, definitions: Definitions) -> Schema:
        """The schema, never a reference to it."""
        properties = {}
        for one in self.fields:
            schema = one.kind.schema(definitions)
            if one.default is not REQUIRED:
                schema = schema | {"default": one.default}
            properties[one.name] = schema
        result: Schema = {"type": "object", "properties": properties}
        if required := [one.name for one in self.fields if not one.optional]:
            result["required"] = required
        return result | {"additionalProperties": False}

    def read(self, value: Any, at: str, problems: list[str]) -> Any:
        if not isinstance(value, dict):
            self._refuse(value, at, problems)
            return None
        before = len(problems)
        given = {}
        for one in self.fields:
            if one.name in value:
                path = f"{at}.{one.name}"
                given[one.name] = one.kind.read(value[one.name], path, problems)
            elif not one.optional:
                problems.append(
                    f"{at}.{one.name} is missing: it must be {one.kind.noun}"
                )
        names = [one.name for one in self.fields]
        for name in value:
            if name not in names:
                known = ", ".join(names) or "none"
                problems.append(f"{at}.{name} is unknown: there is {known}")
        if len(problems) > before:
            return None
        try:
            return self.make(**given)
        except (TypeError, ValueError) as error:
            problems.append(f"{at} is refused: {error}")
            return None


def shown(value: Any) -> str:
    """A JSON value in a sentence, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _type_of(value: Any) -> str:
    for kind in ("null", "boolean", "string", "integer", "number"):
        problems: list[str] = []
        Scalar(kind).read(value, "", problems)
        if not problems:
            return kind
    return "object"
