"""Two doors, one truth: what does I/O has an async twin with its signature."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from django_streams import Streams, StreamWriter
from django_streams.chat.handle import ConversationHandle

PUBLIC = (ConversationHandle, Streams, StreamWriter)

# A thread cannot be cancelled, so a sync reader is ended by an event or a
# time limit; an async one is cancelled.
SYNC_ONLY_PARAMETERS = {
    "read": {"stop", "timeout"},
    "read_batches": {"stop", "timeout"},
}
# They do no I/O.
WITHOUT_TWIN: dict[type, set[str]] = {
    ConversationHandle: set(),
    Streams: {"follower"},  # makes a reader, which then has both doors
    # They say something to the handle.
    StreamWriter: {"hurry", "on_cancelled"},
}


def _methods(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and not isinstance(value, type)
    }


def _pairs() -> list[tuple[type, str]]:
    return [
        (cls, name)
        for cls in PUBLIC
        for name in _methods(cls)
        if "a" + name in _methods(cls)
    ]


@pytest.mark.parametrize("cls", PUBLIC)
def test_every_method_has_a_twin_or_is_one(cls: type) -> None:
    methods = _methods(cls)
    paired = {name for name in methods if "a" + name in methods}
    paired |= {"a" + name for name in paired}
    assert set(methods) - paired == WITHOUT_TWIN[cls]


@pytest.mark.parametrize(("cls", "name"), _pairs())
def test_a_twin_takes_the_same_arguments(cls: type, name: str) -> None:
    own = SYNC_ONLY_PARAMETERS.get(name, set())
    sync, twin = (
        [
            (parameter.name, parameter.kind, parameter.default)
            for parameter in inspect.signature(function).parameters.values()
            if parameter.name not in own
        ]
        for function in (getattr(cls, name), getattr(cls, "a" + name))
    )
    assert sync == twin


@pytest.mark.parametrize(("cls", "name"), _pairs())
def test_only_the_twin_is_asynchronous(cls: type, name: str) -> None:
    def awaits(function: Any) -> bool:
        return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(
            function
        )

    assert awaits(getattr(cls, "a" + name))
    assert not awaits(getattr(cls, name))


@pytest.mark.parametrize("cls", PUBLIC)
def test_both_doors_are_documented(cls: type) -> None:
    public = _methods(cls)
    assert [n for n in sorted(public) if not inspect.getdoc(getattr(cls, n))] == []


def test_a_writer_is_a_context_manager_through_both_doors() -> None:
    for name in ("__enter__", "__exit__", "__aenter__", "__aexit__"):
        assert hasattr(StreamWriter, name)
