"""The names of ``django_streams`` are few, sorted, real and cheap to import."""

from __future__ import annotations

import subprocess
import sys
import types

import django_streams
from django_streams import exceptions

ALONE = """
import sys
import django_streams
assert "django.db" not in sys.modules, "importing the package loaded Django's ORM"
from django_streams import StreamChunk, StreamsError
assert set(django_streams.__all__) <= set(dir(django_streams))
"""


def test_the_list_is_sorted_and_has_at_most_twenty_names() -> None:
    assert django_streams.__all__ == sorted(set(django_streams.__all__))
    assert len(django_streams.__all__) <= 20


def test_every_listed_name_exists_and_every_public_name_is_listed() -> None:
    for name in django_streams.__all__:
        assert getattr(django_streams, name).__name__ == name
    public = {
        name
        for name, value in vars(django_streams).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "").startswith("django_streams")
    }
    assert public == set(django_streams.__all__)


def test_every_exception_is_public_and_has_a_code_of_its_own() -> None:
    tree = [
        value
        for value in vars(exceptions).values()
        if isinstance(value, type) and issubclass(value, exceptions.StreamsError)
    ]
    assert {error.__name__ for error in tree} <= set(django_streams.__all__)
    assert len({error.default_code for error in tree}) == len(tree)


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(django_streams, "Strems")


def test_importing_the_package_needs_neither_settings_nor_models() -> None:
    subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE],
        check=True,
        env={"PYTHONPATH": "."},
    )
