"""Which JSON values are messages that can be kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from django_streams.messages.valid import is_message, read

GOOD = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}


@pytest.mark.parametrize(
    "value",
    [
        GOOD,
        GOOD | {"role": "assistant"},
        GOOD | {"role": "system"},
        GOOD | {"parts": []},
        GOOD | {"metadata": {"a": 1}, "other": None},
    ],
)
def test_an_id_a_role_and_parts_make_a_message(value: Any) -> None:
    assert is_message(value)
    assert read(json.dumps(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "m",
        {},
        GOOD | {"id": ""},
        GOOD | {"id": 7},
        GOOD | {"id": None},
        GOOD | {"role": "tool"},
        GOOD | {"role": ["user"]},
        GOOD | {"parts": None},
        GOOD | {"parts": {}},
        GOOD | {"parts": ["text"]},
        {key: value for key, value in GOOD.items() if key != "parts"},
    ],
)
def test_anything_else_is_none(value: Any) -> None:
    assert not is_message(value)
    assert read(json.dumps(value)) is None


@pytest.mark.parametrize("text", ["", "{", "nul", '{"id":', "[" * 100_000, "NaN"])
def test_a_text_that_is_not_json_is_none(text: str) -> None:
    assert read(text) is None
