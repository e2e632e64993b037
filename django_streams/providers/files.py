"""Files of a message, as models are told of them."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes


@dataclass(frozen=True, slots=True)
class File:
    """A file part: with an address from which it can be fetched, or with data."""

    media_type: str
    url: str | None
    data: bytes | None
    name: str | None


def file_of(part: dict[str, Any]) -> File | None:
    """The file of a part; None for another part, and for a file of which a model
    could not be told, such as one with an address inside of the site."""
    url, kind, name = (part.get(key) for key in ("url", "mediaType", "filename"))
    if part.get("type") != "file" or not isinstance(url, str):
        return None
    name = name if isinstance(name, str) and name else None
    media_type = kind if isinstance(kind, str) else ""
    if url.startswith(("http://", "https://")):
        return File(media_type, url, None, name)
    head, comma, body = url.partition(",")
    if not head.startswith("data:") or not comma:
        return None
    said, *marks = head.removeprefix("data:").split(";")
    try:
        data = unquote_to_bytes(body)
        if "base64" in marks:
            data = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return File(media_type or said, None, data, name)
