"""A chat agent over WebSockets; see ``docs/tutorial/chat.md``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..tools import tool
    from ..turns.policy import CancelAfter, Debounce
    from .consumer import AIChatConsumer
    from .routing import agent_routes, agent_urls
    from .rpc import Call, callable
    from .views import ChatView

__all__ = [
    "AIChatConsumer",
    "Call",
    "CancelAfter",
    "ChatView",
    "Debounce",
    "agent_routes",
    "agent_urls",
    "callable",
    "tool",
]

# At first use: the pure modules of this room can be had without apps.
_FIRST_USE = {
    "AIChatConsumer": ".consumer",
    "Call": ".rpc",
    "CancelAfter": "..turns.policy",
    "ChatView": ".views",
    "Debounce": "..turns.policy",
    "agent_routes": ".routing",
    "agent_urls": ".routing",
    "callable": ".rpc",
    "tool": "..tools",
}


def __getattr__(name: str) -> Any:
    if (module := _FIRST_USE.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value
