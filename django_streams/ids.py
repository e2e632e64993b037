"""Stream ids, the keys they are stored under, and names made of them."""

from __future__ import annotations

import hashlib
import re
import secrets

MAX_ID_LENGTH = 256
MAX_OWNER_LENGTH = 128

# C0, DEL, C1 (NUL and NEL among them) and surrogates: none of them survives
# every database, header and log line.
_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def check_stream_id(stream_id: str) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless *stream_id* may be opened."""
    check_id(stream_id, "stream id")


def check_id(value: str, what: str, most: int = MAX_ID_LENGTH) -> None:
    """The rule for every readable id: 1 to *most* printable characters."""
    if not isinstance(value, str):
        raise TypeError(
            f"a {what} must be a str, not {type(value).__name__}; "
            f"pass str({what.replace(' ', '_')})"
        )
    if not value:
        raise ValueError(f"a {what} must not be empty; use 1 to {most}")
    if len(value) > most:
        raise ValueError(
            f"{what} {value[:32]!r}… has {len(value)} characters; "
            f"the limit is {most}, hash longer names"
        )
    if bad := _FORBIDDEN.search(value):
        raise ValueError(
            f"{what} {value!r} has the character {bad[0]!r} at position "
            f"{bad.start()}; control characters and surrogates are not allowed"
        )


def hash_key(*parts: str) -> str:
    """32 hex digits that stand for *parts* in unique columns and group names.

    BLAKE2b-128 of the exact UTF-8: MariaDB's unique text folds case, accents
    and trailing blanks, a channel group name takes neither ``:`` nor non-ASCII.
    """
    joined = "\x00".join(parts)
    raw = joined.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def stream_key(stream_id: str) -> str:
    """The key of a stream id, any string: an illegal one simply matches none."""
    if not isinstance(stream_id, str):
        raise TypeError(f"a stream id must be a str, not {type(stream_id).__name__}")
    return hash_key(stream_id)


def tag_key(tag: str | None) -> str:
    """The indexed key of a tag; ``""`` stands for no tag."""
    return "" if tag is None else hash_key(tag)


def new_id(prefix: str = "") -> str:
    """An unguessable id: 128 random bits in 22 URL-safe characters."""
    return prefix + secrets.token_urlsafe(16)


def new_token() -> int:
    """A writer's token: 63 random bits, which every database holds as bigint."""
    return secrets.randbits(63)
