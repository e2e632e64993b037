"""The decorator that makes a tool of a function."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, get_type_hints, overload

from .annotations import Annotations
from .kinds import REQUIRED, Definitions, Record, Schema

P = ParamSpec("P")
R = TypeVar("R")

Approval: TypeAlias = bool | Callable[..., bool | Awaitable[bool]]

TURN = "turn"
"""The parameter that receives the turn; a model is never told of it."""

# What every provider accepts.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ToolArgumentError(ValueError):
    """What a model sent does not fit; the message is for the model to read."""

    def __init__(self, tool: str, problems: list[str]) -> None:
        super().__init__(f"Invalid arguments for {tool}: {'; '.join(problems)}.")
        self.tool = tool
        self.problems = problems
        """One for each thing that is wrong, with its path, as ``$.city``."""


class Tool(Generic[P, R]):
    """A function that a model may call; calling it calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        needs_approval: Approval = False,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", ""))
        if not _NAME.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} cannot be the name of a tool: 1 to 64 of A-Z, a-z, "
                "0-9, _ and -; set one with @tool(name=…)"
            )
        doc = inspect.getdoc(function) if description is None else description
        self.description = (doc or "").strip()
        self.needs_approval = needs_approval
        self._arguments = self._read(function)
        self._takes_turn = _takes_turn(function)
        self.parameters = _schema(self._arguments)
        """The JSON schema of the arguments."""
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__wrapped__ = function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    @property
    def schema(self) -> dict[str, Any]:
        """``{"name", "description", "parameters"}``, as clients send theirs."""
        return {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }

    def arguments(self, sent: Any, *, turn: Any = None) -> dict[str, Any]:
        """The keyword arguments for what a model sent, checked and converted.

        Raises :class:`ToolArgumentError`, which lists everything that is wrong.
        """
        problems: list[str] = []
        given: dict[str, Any] = {}
        try:
            given = self._arguments.read(sent, "$", problems)
        except RecursionError:
            problems = ["$ is nested too deeply"]
        if problems:
            raise ToolArgumentError(self.name, problems)
        return given | {TURN: turn} if self._takes_turn else given

    def approval_for(self, arguments: dict[str, Any]) -> bool | Awaitable[bool]:
        """Whether a person must allow a call with these :meth:`arguments`.

        What ``needs_approval`` says, or returns when it is called with those of
        them that it has parameters for; an awaitable, if it is ``async def``.
        """
        if not callable(self.needs_approval):
            return self.needs_approval
        parameters = inspect.signature(self.needs_approval).parameters.values()
        if any(one.kind is one.VAR_KEYWORD for one in parameters):
            return self.needs_approval(**arguments)
        names = {one.name for one in parameters}
        return self.needs_approval(
            **{name: value for name, value in arguments.items() if name in names}
        )

    def _read(self, function: Callable[..., Any]) -> Record:
        annotations = Annotations()
        record = Record(self.name, dict)
        hints = _hints(function)
        for one in inspect.signature(function).parameters.values():
            if one.name == TURN:
                continue
            if one.kind in (one.POSITIONAL_ONLY, one.VAR_POSITIONAL, one.VAR_KEYWORD):
                raise TypeError(
                    f"the parameter {str(one)!r} of the tool {self.name} cannot be "
                    "passed by name; write it as a plain parameter"
                )
            default = REQUIRED if one.default is one.empty else one.default
            try:
                field = annotations.field(one.name, hints.get(one.name, Any), default)
            except TypeError as error:
                raise TypeError(
                    f"the parameter {one.name!r} of the tool {self.name}: {error}"
                ) from None
            record.fields.append(field)
        return record


class ToolSet:
    """Tools by name."""

    def __init__(
        self, tools: Iterable[Tool[..., Any] | Callable[..., Any]] = ()
    ) -> None:
        """Plain functions become tools. Raises ``ValueError`` for two of one name."""
        self._tools: dict[str, Tool[..., Any]] = {}
        for one in tools:
            made = one if isinstance(one, Tool) else Tool(one)
            if made.name in self._tools:
                raise ValueError(f"there are two tools named {made.name!r}; rename one")
            self._tools[made.name] = made

    def __iter__(self) -> Iterator[Tool[..., Any]]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def get(self, name: str) -> Tool[..., Any] | None:
        return self._tools.get(name)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [one.schema for one in self]

    def to_openai(self) -> list[dict[str, Any]]:
        """The ``tools`` of a chat completion."""
        return [{"type": "function", "function": schema} for schema in self.schemas]


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of what a model is told. The turn's, and the result's, may
    name what is only imported for type checkers."""
    told = {
        name: annotation
        for name, annotation in function.__annotations__.items()
        if name not in (TURN, "return")
    }
    holder = types.SimpleNamespace(__annotations__=told)
    space = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(holder, space, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"an annotation of {function.__qualname__} cannot be read: {error}; what "
            "it names must be importable at run time, at the top of its module"
        ) from error


def _takes_turn(function: Callable[..., Any]) -> bool:
    return TURN in inspect.signature(function).parameters


def _schema(arguments: Record) -> Schema:
    definitions = Definitions()
    schema = arguments.inner_schema(definitions)
    if definitions.schemas:
        schema["$defs"] = definitions.schemas
    return schema


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    needs_approval: Approval = False,
) -> Any:
    """Make a tool of a function: ``@tool`` or ``@tool(…)``.

    The schema comes from the annotations, the description from the docstring. A
    parameter named ``turn`` receives the turn and is in neither. *needs_approval*
    is a bool, or a function of (some of) the same parameters that returns one.
    Raises ``TypeError`` for a parameter that cannot be told to a model.
    """

    def make(function: Callable[..., Any]) -> Tool[..., Any]:
        return Tool(
            function,
            name=name,
            description=description,
            needs_approval=needs_approval,
        )

    return make if function is None else make(function)
