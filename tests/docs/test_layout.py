"""What the tree looks like: sizes, and words that do not belong in it."""

from __future__ import annotations

import pytest

from tests.sizes import ROOT, too_long, tracked

# Written in pieces, so that this file does not hold what it forbids.
REGISTRIES = (
    "pypi." + "org",
    "pythonhosted." + "org",
    "registry.npm" + "js.org",
    "registry.yarn" + "pkg.com",
    "deb." + "debian.org",
)
MACHINE_PATHS = tuple(
    "/" + name + "/" for name in ("work", "root", "farm", "tmp", "home")
)


def _texts() -> list[tuple[str, str]]:
    texts = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            texts.append((str(path.relative_to(ROOT)), data.decode("utf-8", "replace")))
    return texts


def test_no_source_file_is_longer_than_the_wall() -> None:
    assert too_long() == []


@pytest.mark.parametrize("word", REGISTRIES)
def test_no_file_names_the_host_of_a_package_registry(word: str) -> None:
    assert [name for name, text in _texts() if word in text] == []


@pytest.mark.parametrize("word", MACHINE_PATHS)
def test_no_file_names_a_path_of_one_machine(word: str) -> None:
    quotes = ("", '"', "'", " ", "`", "(", "=", ":", "\n")
    assert [
        name
        for name, text in _texts()
        if any(quote + word in text for quote in quotes[1:]) or text.startswith(word)
    ] == []


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in tracked("tests/*.py")}
    assert [f.name for f in folders if not (f / "__init__.py").is_file()] == []
