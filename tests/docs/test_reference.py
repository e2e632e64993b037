"""The reference pages name everything there is, with its default."""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest

from django_streams import conf
from tests.sizes import ROOT, tracked

SETTINGS_PAGE = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
CHECKS_PAGE = (ROOT / "docs/reference/checks.md").read_text(encoding="utf-8")
CHECKS_SOURCE = (ROOT / "django_streams/checks.py").read_text(encoding="utf-8")


def _documented() -> dict[str, object]:
    found = re.findall(
        r"^### `(\w+)`\n\nDefault: `(.+)`\n\n\S", SETTINGS_PAGE, flags=re.MULTILINE
    )
    return {name: ast.literal_eval(default) for name, default in found}


def test_every_setting_is_documented_with_its_default_and_a_text() -> None:
    assert _documented() == {f.name: f.default for f in fields(conf.Settings)}


def _ids(text: str) -> list[str]:
    return re.findall(r"\b([EWI]\d{3})\b", text)


def test_every_check_has_an_id_of_its_own() -> None:
    used = _ids(" ".join(re.findall(r'id=f"{LABEL}\.(\w+)"', CHECKS_SOURCE)))
    assert used
    assert len(used) == len(set(used))


def test_every_check_has_a_hint() -> None:
    tree = ast.parse(CHECKS_SOURCE)
    messages = [
        {keyword.arg for keyword in node.keywords}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Error", "Warning", "Info")
    ]
    assert messages
    assert all({"hint", "id"} <= keywords for keywords in messages)


def test_the_page_of_checks_lists_exactly_the_checks() -> None:
    used = re.findall(r'id=f"{LABEL}\.(\w+)"', CHECKS_SOURCE)
    listed = re.findall(r"^\| `django_streams\.(\w+)`", CHECKS_PAGE, re.MULTILINE)
    assert sorted(listed) == sorted(used)


PAGES = tracked("README.md", "CHANGELOG.md", "docs/*.md")


def _slug(heading: str) -> str:
    text = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"\s", "-", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists():
            dead.append(target)
        elif anchor and file.suffix == ".md":
            headings = re.findall(
                r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE
            )
            if anchor not in {_slug(heading) for heading in headings}:
                dead.append(target)
    assert dead == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    missing = []
    for file, name in re.findall(
        r"(tests/[\w/]+\.py)(?:::(\w+))?", page.read_text(encoding="utf-8")
    ):
        path = ROOT / file
        if not path.is_file() or (
            name and f"def {name}(" not in path.read_text(encoding="utf-8")
        ):
            missing.append(f"{file}::{name}")
    assert missing == []
