"""The page of what is accepted names tests that exist, one at least a row."""

from __future__ import annotations

import re

import pytest

from tests.sizes import ROOT

PAGE = (ROOT / "docs/reference/acceptance.md").read_text(encoding="utf-8")
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
HELD, _, REFUSED = PAGE.partition("## Not applicable")
ROWS = [row for row in HELD.splitlines() if re.match(r"\| (?!---|behaviour)", row)]


def test_every_behaviour_has_a_test_and_every_refusal_a_reason() -> None:
    assert ROWS
    assert [row for row in ROWS if not TEST.search(row)] == []
    refused = re.findall(r"^\| (.+?) \| (.*?) ?\|$", REFUSED, re.MULTILINE)
    assert len(refused) > 2
    assert all(reason for _, reason in refused)


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(HELD))))
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert re.search(rf"def {name}\(", text)
