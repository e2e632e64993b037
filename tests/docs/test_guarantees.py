"""The page that links promises to tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
PAGE = (TESTS.parent / "docs/guarantees.md").read_text(encoding="utf-8")
NAMED = re.findall(r"^- `([\w/]+\.py)::(\w+)`$", PAGE, re.MULTILINE)


def test_every_promise_has_tests() -> None:
    promises = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    assert [p.split(".")[0] for p in promises] == [str(n) for n in range(1, 9)]
    assert [p for p in promises if "\n- `" not in p] == []


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    text = (TESTS / file).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\(", text)
