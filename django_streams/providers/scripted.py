"""A model that needs no key: it writes what it was given, word by word."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

_WORD = re.compile(r"\s*\S+\s*?(?=\s|$)|\s+$")


def words(text: str) -> list[str]:
    """*text* cut before the blanks between words; joined it is *text* again."""
    return _WORD.findall(text)


async def scripted(text: str, *, pause: float = 0.03) -> AsyncGenerator[str, None]:
    """Say *text* word by word, *pause* seconds apart."""
    for word in words(text):
        yield word
        await asyncio.sleep(pause)
