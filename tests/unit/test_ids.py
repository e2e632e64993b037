"""Ids, and the keys that stand for them where a database folds text."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import ids

FOLDED = ["a", "A", "á", "a\u0301", "a ", " a", "ａ", "ß", "ss", "ſ", "s"]
"""Told apart by nobody's unique index on MariaDB."""


def test_legal_ids_pass() -> None:
    for stream_id in ["x", "x" * 256, "\U0001f600" * 256, "a b", "é", "\u2028", "/"]:
        ids.check_stream_id(stream_id)


@pytest.mark.parametrize(
    "stream_id",
    ["", "x" * 257, "\x00", "a\n", "\t", "\x1f", "\x7f", "\x80", "\x9f", "\ud800"],
)
def test_illegal_ids_are_refused(stream_id: str) -> None:
    with pytest.raises(ValueError, match="stream id"):
        ids.check_stream_id(stream_id)


@pytest.mark.parametrize("stream_id", [None, 1, b"x", ["x"]])
def test_an_id_that_is_no_text_is_refused(stream_id: Any) -> None:
    with pytest.raises(TypeError, match="stream id"):
        ids.check_stream_id(stream_id)
    with pytest.raises(TypeError, match="stream id"):
        ids.stream_key(stream_id)


def test_the_message_says_what_is_wrong_and_where() -> None:
    with pytest.raises(ValueError, match="257"):
        ids.check_stream_id("x" * 257)
    with pytest.raises(ValueError, match="position 2"):
        ids.check_stream_id("ab\x00")
    with pytest.raises(ValueError, match="tag"):
        ids.check_id("", "tag")


def test_the_message_about_a_long_id_is_short() -> None:
    with pytest.raises(ValueError, match="characters") as caught:
        ids.check_stream_id("x" * 100_000)
    assert len(str(caught.value)) < 200


def test_a_key_is_the_blake2b_of_the_exact_text() -> None:
    """Stored in rows: it must never change."""
    assert ids.stream_key("report") == "e6bc9062f8b833cfb81f0f3e645b202d"


def test_ids_that_a_database_folds_have_different_keys() -> None:
    assert len({ids.stream_key(i) for i in FOLDED}) == len(FOLDED)


@given(st.text())
def test_every_text_has_a_key_that_fits_every_name(text: str) -> None:
    """Also illegal ids: they match no stream instead of raising."""
    key = ids.stream_key(text)
    assert re.fullmatch("[0-9a-f]{32}", key)
    assert key == ids.stream_key(text)


def test_parts_of_a_key_do_not_run_into_each_other() -> None:
    assert ids.hash_key("a", "bc") != ids.hash_key("ab", "c")
    assert ids.hash_key("a", "") != ids.hash_key("a")


def test_no_tag_and_an_empty_tag_are_two_answers() -> None:
    assert ids.tag_key(None) == ""
    assert ids.tag_key("") != ""
    assert ids.tag_key("a") != ids.tag_key("A")


def test_new_ids_are_legal_and_do_not_repeat() -> None:
    made = {ids.new_id("r_") for _ in range(1000)}
    assert len(made) == 1000
    for stream_id in made:
        ids.check_stream_id(stream_id)
        assert re.fullmatch(r"r_[A-Za-z0-9_-]{22}", stream_id)


def test_tokens_fit_a_bigint() -> None:
    tokens = {ids.new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(0 <= token < 2**63 for token in tokens)
