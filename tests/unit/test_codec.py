"""What a chunk may be, without a store."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_streams import codec
from django_streams.exceptions import ChunkTooLargeError, StreamSerializationError

EVERY = st.characters()
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(EVERY),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.text(EVERY), inner, max_size=5)
    ),
    max_leaves=20,
)


def whole(value: Any) -> Any:
    """*value* with surrogate pairs as the characters they stand for."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {whole(key): whole(item) for key, item in value.items()}
    return value


@given(JSON)
def test_every_json_value_comes_back(value: Any) -> None:
    text = codec.encode(value)
    assert repr(codec.decode(text)) == repr(whole(value))


@given(JSON)
def test_the_text_is_safe_for_every_wire(value: Any) -> None:
    text = codec.encode(value)
    text.encode("utf-8")
    assert len(text.splitlines()) == 1
    # Somebody else's parser reads the same.
    assert repr(json.loads(text)) == repr(whole(value))


@given(st.text(EVERY))
def test_no_character_needs_care_after_encoding(text: str) -> None:
    encoded = codec.encode(text)
    assert not any(0x7F <= ord(c) <= 0x9F for c in encoded)
    assert not any(0xD800 <= ord(c) <= 0xDFFF for c in encoded)
    assert not set(encoded) & set("\u2028\u2029\r\n")


@given(st.lists(JSON, min_size=1, max_size=6))
def test_a_block_gives_its_texts_back(values: list[Any]) -> None:
    texts = [codec.encode(value) for value in values]
    assert codec.split(codec.join(texts)) == texts


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [1, 2.0, None, True]}, '{"b":1,"a":[1,2.0,null,true]}'),
        ("é\U0001f600", '"é\U0001f600"'),
        ("\x00\x1f\x7f\x85\u2028\u2029\ud800", None),
        ("\\u0000", '"\\\\u0000"'),
        (-0.0, "-0.0"),
        ((1, (2,)), "[1,[2]]"),
    ],
)
def test_texts_are_compact_and_readable(value: Any, text: str | None) -> None:
    if text is None:
        text = '"\\u0000\\u001f\\u007f\\u0085\\u2028\\u2029\\ud800"'
    assert codec.encode(value) == text


@pytest.mark.parametrize("digits", [4299, 4300, 4301, 5000, 20_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_have_no_limit_of_digits(digits: int, sign: int) -> None:
    value = sign * (10**digits - 7)
    for chunk in (value, [value], {"a": [{"b": value}], "c": 1.5}):
        assert codec.decode(codec.encode(chunk)) == chunk
    assert sys.get_int_max_str_digits() == 4300, "a process-wide limit was changed"


def test_a_huge_integer_is_too_large_and_not_slow() -> None:
    with pytest.raises(ChunkTooLargeError):
        codec.encode(1 << 8_000_000)


def test_a_malformed_text_is_an_error() -> None:
    for text in ("", "[", "1" * 5000 + "x"):
        with pytest.raises(ValueError):
            codec.decode(text)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        ([1, math.inf], "$[1]"),
        ({"a": {"b": [-math.inf]}}, "$.a.b[0]"),
        ({"with space": [b""]}, '$["with space"][0]'),
        ({'quote"': {"\n": set()}}, '$["quote\\""]["\\n"]'),
        ({"": object()}, '$[""]'),
        ([[[{"x": [1, (2, 3j)]}]]], "$[0][0][0].x[1][1]"),
    ],
)
def test_the_path_of_the_bad_value_is_named(value: Any, path: str) -> None:
    with pytest.raises(StreamSerializationError) as caught:
        codec.encode(value, stream_id="s")
    assert caught.value.path == path
    assert path in str(caught.value)
    assert caught.value.stream_id == "s"


@pytest.mark.parametrize("key", [1, 1.5, None, True, (1,), b"k"])
def test_keys_must_be_strings(key: Any) -> None:
    with pytest.raises(StreamSerializationError, match="key"):
        codec.encode({"fine": 1, key: 2})


def test_a_value_that_contains_itself_is_refused() -> None:
    own_list: list[Any] = []
    own_list.append(own_list)
    own_dict: dict[str, Any] = {}
    own_dict["a"] = [own_dict]
    for value in (own_list, own_dict):
        with pytest.raises(StreamSerializationError, match="itself"):
            codec.encode(value)


def test_a_value_that_is_there_twice_is_no_cycle() -> None:
    part = {"x": [1]}
    value = [part, part, {"again": part}]
    assert codec.decode(codec.encode(value)) == value


def nested(depth: int, leaf: Any, *, kind: str) -> Any:
    value = leaf
    for _ in range(depth):
        value = [value] if kind == "list" else {"k": value}
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
@pytest.mark.parametrize("leaf", [0, "\u2028", 10**5000], ids=["int", "text", "huge"])
def test_depth_is_bounded_at_512(kind: str, leaf: Any) -> None:
    deepest = nested(512, leaf, kind=kind)
    assert codec.decode(codec.encode(deepest)) == deepest
    for depth in (513, 5_000, 200_000):
        with pytest.raises(StreamSerializationError, match="512"):
            codec.encode(nested(depth, leaf, kind=kind))


def test_depth_is_bounded_also_with_a_full_stack() -> None:
    """A caller deep in recursion must not get a RecursionError for a good chunk."""

    def deep(frames: int) -> str:
        if frames:
            return deep(frames - 1)
        return codec.encode(nested(400, 1, kind="list"))

    assert deep(300).count("[") == 400


def test_the_limit_is_inclusive_and_counts_bytes_after_escaping() -> None:
    assert codec.encode("é" * 4, limit=10) == '"éééé"'
    for value in ("é" * 5, "\x85" * 2, "\ud800" * 2, [1, 2, 3, 4, 5]):
        with pytest.raises(ChunkTooLargeError) as caught:
            codec.encode(value, limit=10, stream_id="s")
        assert caught.value.limit == 10
        assert caught.value.size == len(codec.encode(value).encode())
        assert (caught.value.code, caught.value.stream_id) == ("too_large", "s")
    assert codec.encode("\x85", limit=8) == '"\\u0085"'


def test_the_message_names_what_was_refused() -> None:
    with pytest.raises(StreamSerializationError, match="metadata"):
        codec.encode({"a": math.nan}, what="metadata")
    with pytest.raises(ChunkTooLargeError, match=r"12 bytes.*10"):
        codec.encode("x" * 10, limit=10)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


def test_subclasses_of_json_types_are_what_they_are() -> None:
    value = OrderedDict([("z", Colour.RED), ("a", Size.BIG)])
    assert codec.encode(value) == '{"z":"red","a":3}'
