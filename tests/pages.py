"""The examples on the protocol's page."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.sizes import ROOT

PAGE: Final = (ROOT / "docs/reference/chat-protocol.md").read_text(encoding="utf-8")

CLIENT: Final = "From the client"
SERVER: Final = "From the server"


def examples(sections: str) -> list[Any]:
    """The frames under the headings that begin with *sections*."""
    parts = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    chosen = "".join(part for part in parts if part.startswith(sections))
    return [json.loads(e) for e in re.findall(r"```json\n(.*?)```", chosen, re.DOTALL)]


def example(sections: str, kind: str, **members: Any) -> Any:
    """The one example of *kind* there that has *members*; None: has it not."""
    found = [
        frame
        for frame in examples(sections)
        if frame["type"] == kind
        and all(frame.get(name) == value for name, value in members.items())
    ]
    assert len(found) == 1, (sections, kind, members, found)
    return found[0]
