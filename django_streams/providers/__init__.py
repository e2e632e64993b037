"""Adapters from a model's own stream to what a handler yields."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any


def adapt(result: Any) -> AsyncIterator[Any] | None:
    """The items of a provider's stream object; None if it is not one we know.

    Told by where its class comes from, so that no provider's package is imported.
    """
    match _origin(result).partition(".")[0]:
        case "openai":
            from . import openai

            return openai.items(result)
        case "anthropic":
            from . import anthropic

            return anthropic.items(result)
        case "pydantic_ai":
            from . import pydantic_ai

            return pydantic_ai.items(result)
    return None


def _origin(result: Any) -> str:
    """The module of its class, or what stands for it: pydantic-ai has plain
    generators, and context managers that are made of generators."""
    module = type(result).__module__
    if inspect.isasyncgen(result):
        frame = result.ag_frame
        module = str(frame.f_globals.get("__name__")) if frame else ""
    elif module == "contextlib":
        module = str(getattr(getattr(result, "func", None), "__module__", ""))
    else:
        return module
    return module if module.startswith("pydantic_ai.") else ""
