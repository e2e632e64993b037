"""ASGI applications for tests of the plumbing."""

from __future__ import annotations

from typing import Any


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers every request with one word."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})
