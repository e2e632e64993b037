"""Adapters of models: what a handler may yield is what comes out."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import providers
from django_streams.providers import anthropic, openai, pydantic_ai, scripted


@given(st.text(alphabet="ab \n\t*", max_size=40))
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    assert "".join(scripted.words(text)) == text


async def test_the_scripted_model_says_its_text_word_by_word() -> None:
    said = [word async for word in scripted.scripted("one two\n\n- three", pause=0)]
    assert said == ["one", " two", "\n\n-", " three"]


async def plain() -> AsyncIterator[str]:
    yield "a"


@contextlib.asynccontextmanager
async def managed() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(
    "result", ["a", {"type": "x"}, [], plain(), managed(), 7, None]
)
def test_nothing_else_is_taken_for_a_model(result: Any) -> None:
    assert providers.adapt(result) is None


ALONE = """
import sys
from django_streams import providers
from django_streams.providers import anthropic, openai, pydantic_ai
known = [name for name in ("anthropic", "openai", "pydantic_ai") if name in sys.modules]
assert known == [], known
"""


def test_an_adapter_is_there_without_the_package_that_it_adapts() -> None:
    subprocess.run([sys.executable, "-c", ALONE], check=True, env={"PYTHONPATH": "."})


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (openai.client, "openai"),
        (anthropic.client, "anthropic"),
        (lambda: pydantic_ai.to_messages([]), "pydantic-ai"),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("openai", "anthropic", "pydantic_ai.messages"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"django-streams\[{extra}\]"):
        make()
