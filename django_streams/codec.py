"""What a chunk may be, and its JSON text in and out.

The policy is ours, whatever the engine: the standard library alone writes NaN,
turns the key ``1`` into ``"1"`` and stops at integers of 4,300 digits.

The text is stored once and sent as it is, so it is made safe for every wire
here: no raw newline (blocks are split at newlines), and no character at which a
naive line reader breaks (U+0085, U+2028, U+2029), nor a lone surrogate, which
has no UTF-8 form. Such characters stand as escapes and come back unchanged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from .exceptions import ChunkTooLargeError, StreamSerializationError
from .types import Json

MAX_DEPTH = 512
"""Nesting of arrays and objects; parsers of other languages fail near 1,000."""

MAX_CHUNK_BYTES = 1_048_576
"""Default size limit of one chunk's stored text: 1 MiB, as in the original."""

# Python converts integers beyond 4,300 digits in no direction by default.
_INT_DIGITS = 4_300
_INT_BITS = 14_280

_PATH_LENGTH = 200
"""Characters of a path in an error: enough to find the value, fit for a log."""

_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNHELD = re.compile("[\x00\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS = frozenset((str, bool, type(None)))

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


class _BadValue(Exception):
    """Where in the value the offence is and what it is."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem


def encode(
    value: Json,
    *,
    limit: int = MAX_CHUNK_BYTES,
    what: str = "chunk",
    stream_id: str | None = None,
) -> str:
    """The JSON text of *value*: one line, at most *limit* bytes of UTF-8.

    Raises :class:`StreamSerializationError` with the path of the bad value, or
    :class:`ChunkTooLargeError`; exactly *limit* passes.
    """
    of = "" if stream_id is None else f' for stream "{stream_id}"'
    try:
        big = _check(value)
    except _BadValue as bad:
        raise StreamSerializationError(
            f"cannot serialize {what}{of}: {bad.problem} at {bad.path}",
            path=bad.path,
            stream_id=stream_id,
        ) from None
    text = _encode_big(value, limit) if big else _encode(value)
    if text.isascii():
        if "\x7f" in text:
            text = text.replace("\x7f", "\\u007f")
        size = len(text)
    else:
        text = _UNSAFE.sub(_escape, text)
        size = len(text.encode())
    if size > limit:
        raise ChunkTooLargeError(
            f"cannot serialize {what}{of}: its {size} bytes of JSON exceed the "
            f"limit of {limit}; split it, or raise max_chunk_bytes",
            size=size,
            limit=limit,
            stream_id=stream_id,
        )
    return text


def decode(text: str) -> Json:
    """The value of a stored text; the inverse of :func:`encode`."""
    try:
        return json.loads(text)
    except ValueError:
        if not re.search(rf"\d{{{_INT_DIGITS + 1}}}", text):
            raise
        return json.loads(text, parse_int=_int)


def plain_text(text: str) -> str:
    """*text* as every database and wire can hold it, for a reason or a title.

    NUL and lone surrogates become U+FFFD: what they stood for in a message is
    lost in any case, and a stream must not stay live because of them.
    """
    return _UNHELD.sub("\ufffd", text)


def join(texts: Iterable[str]) -> str:
    """The body of a block; :func:`split` gives the texts back."""
    return "\n".join(texts)


def split(body: str) -> list[str]:
    return body.split("\n")


def _escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _int(digits: str) -> int:
    # Decimal has no digit limit and is subquadratic.
    return int(digits) if len(digits) <= _INT_DIGITS else int(Decimal(digits))


class _Done(str):
    """Text that is encoded already."""

    __slots__ = ()


def _encode_big(value: Json, limit: int) -> str:
    """The same text for a value that holds integers of more than 4,300 digits.

    Iterative, as the check is.
    """
    out: list[str] = []
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if type(item) is _Done:
            out.append(item)
        elif isinstance(item, (dict, list, tuple)):
            pieces: list[Any] = []
            if isinstance(item, dict):
                for key, member in item.items():
                    pieces += (_Done(","), _Done(_encode(key) + ":"), member)
            else:
                for member in item:
                    pieces += (_Done(","), member)
            opening, closing = "{}" if isinstance(item, dict) else "[]"
            out.append(opening)
            todo.append(_Done(closing))
            todo += reversed(pieces[1:])
        else:
            out.append(_encode_scalar(item, limit))
    return "".join(out)


def _encode_scalar(value: Json, limit: int) -> str:
    if not isinstance(value, int) or value.bit_length() <= _INT_BITS:
        return _encode(value)
    digits = int(value.bit_length() * math.log10(2))
    if digits > limit:
        return "0" * digits  # Too large whatever the digits are.
    return format(Decimal(value), "f")


def _check(value: Json) -> bool:
    """Raise unless *value* is JSON; true if an integer needs the slow encoder.

    Iterative: a deep value must not exhaust the interpreter's stack. Paths are
    built only for the value that offends.
    """
    kind = type(value)
    if kind in _SCALARS:
        return False
    if kind is dict and all(
        type(name) is str and type(member) in _SCALARS for name, member in value.items()
    ):
        # What most chunks are: flat, with texts.
        return False
    big = False
    # (container, its iterator, how to name a member); the stack is the path.
    stack: list[tuple[Any, Any]] = []
    open_ids: set[int] = set()
    names: list[Any] = []

    def path() -> str:
        steps = "".join(_step(name) for name in names)
        if len(steps) > _PATH_LENGTH:
            half = _PATH_LENGTH // 2
            steps = f"{steps[:half]}…{steps[-half:]}"
        return "$" + steps

    current: Any = value
    while True:
        if isinstance(current, (str, bool)) or current is None:
            pass
        elif isinstance(current, int):
            if current.bit_length() > _INT_BITS:
                big = True
        elif isinstance(current, float):
            if not math.isfinite(current):
                raise _BadValue(path(), f"{current} has no JSON representation")
        elif isinstance(current, (dict, list, tuple)):
            if len(stack) == MAX_DEPTH:
                raise _BadValue(path(), f"nesting deeper than {MAX_DEPTH} levels")
            if id(current) in open_ids:
                raise _BadValue(path(), "the value contains itself")
            open_ids.add(id(current))
            members = (
                iter(current.items())
                if isinstance(current, dict)
                else iter(enumerate(current))
            )
            stack.append((current, members))
            names.append(None)
        else:
            raise _BadValue(
                path(), f"a value of type {type(current).__name__} is not JSON"
            )
        while stack:
            container, members = stack[-1]
            try:
                name, current = next(members)
            except StopIteration:
                stack.pop()
                names.pop()
                open_ids.discard(id(container))
                continue
            names[-1] = name
            if not isinstance(name, str) and isinstance(container, dict):
                raise _BadValue(
                    path(),
                    f"the key {name!r} is not a string but {type(name).__name__}",
                )
            break
        else:
            return big


def _step(name: object) -> str:
    if isinstance(name, str):
        plain = _PLAIN_KEY.fullmatch(name)
        return f".{name}" if plain else f"[{json.dumps(name)}]"
    return f"[{name!r}]"
