"""Adapters from a model's own stream to what a handler yields."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any


def adapt(result: Any) -> AsyncIterator[Any] | None:
    """The items of a provider's stream object; None if it is not one we know.

    Told by the class, so that no provider's package is imported.
    """
    package = type(result).__module__.partition(".")[0]
    if package == "openai":
        from . import openai

        return openai.items(result)
    return None
