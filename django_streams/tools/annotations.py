"""From a Python annotation to the kind of value that a model may send."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from enum import Enum
from typing import (
    Annotated,
    Any,
    Literal,
    NewType,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from .kinds import (
    REQUIRED,
    AnyOf,
    Anything,
    Choice,
    Described,
    Field,
    Kind,
    ListOf,
    MapOf,
    Record,
    Scalar,
    TupleOf,
)
from .results import to_json

_SCALARS: dict[Any, Kind] = {
    str: Scalar("string"),
    int: Scalar("integer"),
    float: Scalar("number"),
    bool: Scalar("boolean"),
    None: Scalar("null"),
    type(None): Scalar("null"),
    Any: Anything(),
    object: Anything(),
}
_LISTS: dict[Any, Any] = {
    list: list,
    Sequence: list,
    MutableSequence: list,
    Iterable: list,
    set: set,
    frozenset: frozenset,
}
_MAPS = (dict, Mapping, MutableMapping)

KNOWN = (
    "str, int, float, bool, None, Any, list, tuple, set, dict with str keys, Literal, "
    "Optional and unions, Annotated, Enum, dataclasses and TypedDict"
)


class Annotations:
    """Reads the annotations of one function."""

    def __init__(self) -> None:
        self._records: dict[type, Record] = {}

    def kind(self, annotation: Any) -> Kind:
        """Raises ``TypeError`` for an annotation that JSON has nothing for."""
        scalar: Kind | None = _get(_SCALARS, annotation)
        if scalar is not None:
            return scalar
        if isinstance(annotation, NewType):
            return self.kind(annotation.__supertype__)
        if (aliased := getattr(annotation, "__value__", None)) is not None:
            # `type X = …`, of Python 3.12.
            return self.kind(aliased)
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            texts = [text for text in args[1:] if isinstance(text, str)]
            kind = self.kind(args[0])
            return Described(kind, texts[0]) if texts else kind
        if origin in (Required, NotRequired):
            return self.kind(args[0])
        if origin is Literal:
            return self._literal(args)
        if origin in (Union, types.UnionType):
            return AnyOf([self.kind(arg) for arg in args])
        return self._container(origin or annotation, args, annotation)

    def field(self, name: str, annotation: Any, default: Any = REQUIRED) -> Field:
        """A member of that name; *default* is a Python value."""
        kind = self.kind(annotation)
        if default is REQUIRED:
            return Field(name, kind)
        try:
            told = to_json(default)
        except TypeError:
            told = REQUIRED
        return Field(name, kind, told, optional=True)

    def _container(self, origin: Any, args: tuple[Any, ...], annotation: Any) -> Kind:
        if (make := _get(_LISTS, origin)) is not None:
            item = self.kind(args[0]) if args else Anything()
            return ListOf(item, make, unique=make is not list)
        if origin is tuple:
            if not args or args[-1] is Ellipsis:
                return ListOf(self.kind(args[0]) if args else Anything(), tuple)
            return TupleOf([self.kind(arg) for arg in args if arg != ()])
        if origin in _MAPS:
            if args and args[0] is not str:
                raise TypeError(f"{annotation!r} has keys that are not str, as in JSON")
            return MapOf(self.kind(args[1]) if args else Anything())
        if isinstance(origin, type):
            if issubclass(origin, Enum):
                return _enum(origin)
            if dataclasses.is_dataclass(origin) or is_typeddict(origin):
                return self._record(origin)
        raise TypeError(f"{annotation!r} cannot be told to a model; there is {KNOWN}")

    def _literal(self, args: tuple[Any, ...]) -> Kind:
        values = [arg.value if isinstance(arg, Enum) else arg for arg in args]
        return Choice(values, args)

    def _record(self, cls: type) -> Record:
        known = self._records.get(cls)
        if known is None:
            known = self._records[cls] = Record(cls.__name__, cls)
            hints = get_type_hints(cls, include_extras=True)
            if dataclasses.is_dataclass(cls):
                known.fields += self._of_dataclass(cls, hints)
            else:
                known.fields += self._of_typeddict(cls, hints)
        return known

    def _of_typeddict(self, cls: Any, hints: dict[str, Any]) -> Iterable[Field]:
        for name, hint in hints.items():
            # `from __future__ import annotations` hides the marks from the class.
            marked = get_origin(hint)
            optional = name not in cls.__required_keys__ and marked is not Required
            kind = self.kind(hint)
            yield Field(name, kind, optional=optional or marked is NotRequired)

    def _of_dataclass(self, cls: Any, hints: dict[str, Any]) -> Iterable[Field]:
        for one in dataclasses.fields(cls):
            if not one.init:
                continue
            hint = hints[one.name]
            if one.default is not dataclasses.MISSING:
                yield self.field(one.name, hint, one.default)
            elif one.default_factory is not dataclasses.MISSING:
                yield self.field(one.name, hint, one.default_factory())
            else:
                yield self.field(one.name, hint)


def _enum(cls: type[Enum]) -> Kind:
    members = list(cls)
    values = [member.value for member in members]
    for value in values:
        if not (value is None or isinstance(value, (str, int, float, bool))):
            raise TypeError(
                f"{cls.__name__} has the value {value!r}, which is not JSON"
            )
    return Choice(values, members)


def _get(table: dict[Any, Any], key: Any) -> Any:
    """An annotation may be anything, also what cannot be looked up."""
    try:
        return table.get(key)
    except TypeError:
        return None
