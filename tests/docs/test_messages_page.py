"""The pages about messages and tools: their examples run."""

from __future__ import annotations

import re
from typing import Any

from tests.sizes import ROOT


def run(page: str, space: dict[str, Any]) -> dict[str, Any]:
    """The names that the page's examples leave, run one after the other."""
    text = (ROOT / "docs/reference" / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(block, space)  # noqa: S102
    return space


def test_the_examples_about_messages_run() -> None:
    chunks = [
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "Hello"},
    ]
    space = run("messages.md", {"chunks": chunks})
    assert space["reply"].message["parts"][0]["text"] == "Hello"


def test_the_examples_about_tools_run_and_say_what_they_print() -> None:
    space = run("tools.md", {"__name__": "example"})
    assert space["weather"].schema["parameters"]["required"] == ["city"]
    assert space["text"] == (
        "Invalid arguments for weather: $.city is missing: it must be a string; "
        '$.unit is "k", not one of "c", "f".'
    )
    assert space["ShopAgent"].tools == [space["order_state"]]
    pay = space["pay"]
    assert pay.approval_for(pay.arguments({"amount": 500, "to": "Ann"})) is True
