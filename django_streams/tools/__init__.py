"""Python functions that a model may call; see ``docs/reference/tools.md``."""

from __future__ import annotations

from .results import to_json
from .tool import Tool, ToolArgumentError, ToolSet, tool

__all__ = ["Tool", "ToolArgumentError", "ToolSet", "to_json", "tool"]
