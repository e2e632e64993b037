"""Tools for tests of projects that use the library; each is loaded at first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..store.memory import MemoryStore
    from .cases import StreamsTestMixin
    from .client import AgentClient
    from .errors import CallError, ClientError, Refused
    from .http import SSEClient
    from .model import NoAnswer, Pause, ScriptedModel, tool_call
    from .reply import Reply
    from .sse import open_sse
    from .wakers import LossyWaker

__all__ = [
    "AgentClient",
    "CallError",
    "ClientError",
    "LossyWaker",
    "MemoryStore",
    "NoAnswer",
    "Pause",
    "Refused",
    "Reply",
    "SSEClient",
    "ScriptedModel",
    "StreamsTestMixin",
    "open_sse",
    "tool_call",
]

_FIRST_USE = {
    "AgentClient": ".client",
    "CallError": ".errors",
    "ClientError": ".errors",
    "LossyWaker": ".wakers",
    "MemoryStore": "..store.memory",
    "NoAnswer": ".model",
    "Pause": ".model",
    "Refused": ".errors",
    "Reply": ".reply",
    "SSEClient": ".http",
    "ScriptedModel": ".model",
    "StreamsTestMixin": ".cases",
    "open_sse": ".sse",
    "tool_call": ".model",
}


def __getattr__(name: str) -> Any:
    if (module := _FIRST_USE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIRST_USE})
