"""Random chunks of an exact size, the same for the same seed. Pure."""

from __future__ import annotations

import base64
import random
import re
from functools import cache

from django_streams import codec

CHUNK = 100
"""Bytes of JSON text of a chunk, unless said otherwise."""

STAMP = re.compile(rb'"at":([0-9.]+),')
"""Finds the time in the text of a :func:`stamped` chunk."""

SAID = re.compile(rb"at=([0-9.]+);")
"""Finds the time in what :func:`said` made, however often it was escaped."""

_SPARE = 4096


def _text(size: int, seed: int) -> str:
    data = random.Random(seed).randbytes(size)  # noqa: S311  (repeatable)
    # No character of it is escaped in JSON, and none repeats to be compressed.
    return base64.urlsafe_b64encode(data).decode()


@cache
def chunks(count: int, size: int = CHUNK, seed: int = 1) -> list[dict[str, str]]:
    """*count* objects whose JSON text has *size* bytes."""
    length = size - len('{"text":""}')
    text = _text(count * length, seed)
    return [{"text": text[i * length : (i + 1) * length]} for i in range(count)]


def texts(count: int, size: int = CHUNK, seed: int = 1) -> list[str]:
    """Their JSON texts."""
    return [codec.encode(chunk) for chunk in chunks(count, size, seed)]


@cache
def _padding() -> str:
    return _text(_SPARE, 2)


def stamped(at: float, number: int, size: int = CHUNK) -> dict[str, float | str]:
    """An object of *size* bytes that says when it was made.

    *at* is of the monotonic clock, which all processes of the machine share.
    """
    at = round(at, 6)
    length = size - len('{"at":,"text":""}') - len(repr(at))
    start = number * 31 % (_SPARE - length)
    return {"at": at, "text": _padding()[start : start + length]}


def said(at: float, number: int, size: int = 50) -> str:
    """*size* characters for an agent to say, with the time as in :func:`stamped`.

    As a chunk of a reply they have about twice as many bytes.
    """
    head = f"at={at:.6f};"
    length = size - len(head)
    start = number * 31 % (_SPARE - length)
    return head + _padding()[start : start + length]
