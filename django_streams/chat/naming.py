"""How a class name becomes the agent's name in an address."""

from __future__ import annotations

import re

_CAPITAL = re.compile(r"[A-Z]")


def kebab(name: str) -> str:
    """``ChatAgent`` is ``chat-agent``, ``AIChatAgent`` ``a-i-chat-agent``.

    The client builds the address by this rule, so it may not be a better one.
    """
    if name.upper() == name and name.lower() != name:
        return name.lower().replace("_", "-")
    dashed = _CAPITAL.sub(lambda capital: "-" + capital[0].lower(), name)
    return dashed.removeprefix("-").replace("_", "-").removesuffix("-")
