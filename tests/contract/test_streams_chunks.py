"""What a chunk may be, the same on all stores."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from django_streams import Streams, StreamSerializationError, StreamWriter

from .stores import StoreUnderTest

BREAKERS = "\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Every character at which ``str.splitlines`` breaks a line."""

TEXTS = [
    "",
    "plain",
    "\x00",
    "a\x00b",
    "\\u0000",
    "\\",
    '"',
    "/",
    "\ud800",
    "a\udfffb",
    "\udc00\ud800",
    "\U0001f600",
    "e\u0301 é \ufeff \uffff \ufdd0",
    "\x01\x1f\x7f\x80\x9f",
    BREAKERS,
    "data: x\n\nevent: done\n\n",
    "</script><!--",
    "\u202e right to left",
]
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**53 + 1,
    2**64,
    -(2**200),
    10**4299,
    10**4300,
    -(10**5000) + 7,
    [{"deep": [10**4500]}, 1],
    0.0,
    -0.0,
    1.0,
    0.1,
    1e16,
    1e22,
    1.7976931348623157e308,
    5e-324,
    math.pi,
    *TEXTS,
    [],
    {},
    [[], [[]], {}],
    {"": ""},
    {"b": 1, "a": 2, "B": 3, "á": 4, "1": 5},
    {text: text for text in TEXTS},
    {"nested": [{"x": [None, {"y": "\x00"}]}]},
]


def read_back(streams: Streams, writer: StreamWriter) -> list[Any]:
    writer.close()
    return [c.chunk for c in streams.read(writer.stream_id)]


def test_every_json_value_comes_back_exactly(streams: Streams) -> None:
    one, many = streams.open("one"), streams.open("many")
    for value in VALUES:
        one.append(value)
    many.extend(VALUES)
    # repr tells 1 from True and 1.0, -0.0 from 0.0, and one key order from another.
    for log in (read_back(streams, one), read_back(streams, many)):
        assert [spelled(v) for v in log] == [spelled(v) for v in VALUES]


def spelled(value: Any) -> str:
    """repr, also of integers that Python will not print."""
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)
    if isinstance(value, list):
        return f"[{','.join(map(spelled, value))}]"
    if isinstance(value, dict):
        return str([(key, spelled(item)) for key, item in value.items()])
    return repr(value)


def test_metadata_comes_back_as_exactly(streams: Streams) -> None:
    metadata = {"values": VALUES}
    streams.open("meta", metadata=metadata)
    status = streams.status("meta")
    assert status is not None
    assert spelled(status.metadata) == spelled(metadata)


def test_tuples_are_lists(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append((1, ("a", {"b": ()})))
    assert read_back(streams, writer) == [[1, ["a", {"b": []}]]]


def test_a_surrogate_pair_is_the_character_it_stands_for(streams: Streams) -> None:
    writer = streams.open("s")
    writer.append({"\ud83d\ude00": "\ud83d\ude00"})
    assert read_back(streams, writer) == [{"\U0001f600": "\U0001f600"}]


def test_raw_text_is_one_line_of_utf8_json(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    writer.extend([*TEXTS, {text: text for text in TEXTS}])
    writer.close()
    texts = [c.chunk for b in streams.read_batches("s", raw=True) for c in b]
    assert len(texts) == len(TEXTS) + 1
    for text, value in zip(texts, TEXTS, strict=False):
        assert len(text.splitlines()) == 1
        text.encode("utf-8")
        assert json.loads(text) == value


def refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} left the library")


def test_no_text_holds_what_json_does_not_know(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    for bad in (math.nan, [math.inf], {"a": -math.inf}):
        with pytest.raises(StreamSerializationError):
            writer.append(bad)
    writer.append("NaN")
    writer.close()
    texts = [c.chunk for b in streams.read_batches("s", raw=True) for c in b]
    assert [json.loads(t, parse_constant=refuse_constant) for t in texts] == ["NaN"]


def cycle() -> list[Any]:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


REFUSED: dict[str, tuple[Any, str]] = {
    "nan": (math.nan, "$"),
    "inf": ([0, math.inf], "$[1]"),
    "negative inf": ({"a": {"b": [0, 1, -math.inf]}}, "$.a.b[2]"),
    "1e400": (float("1e400"), "$"),
    "integer key": ({"a": {1: "x"}}, "$.a"),
    "none key": ({None: 1}, "$"),
    "bool key": ([{True: 1}], "$[0]"),
    "tuple key": ({(1, 2): 1}, "$"),
    "float key": ({"a": [{1.5: 1}]}, "$.a[0]"),
    "bytes": (b"bytes", "$"),
    "bytearray": ([bytearray(b"x")], "$[0]"),
    "set": ({"a": {1}}, "$.a"),
    "frozenset": (frozenset("a"), "$"),
    "complex": (1j, "$"),
    "decimal": ([Decimal("1.5")], "$[0]"),
    "datetime": ({"at": datetime(2020, 1, 1, tzinfo=UTC)}, "$.at"),
    "date": (date(2020, 1, 1), "$"),
    "uuid": (UUID(int=1), "$"),
    "object": ({"a": object()}, "$.a"),
    "generator": ((x for x in "ab"), "$"),
    "function": ([len], "$[0]"),
    "class": (dict, "$"),
    "cycle": (cycle(), "$[1].again"),
    "mapping": ({}.keys(), "$"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_what_is_not_json_is_refused_with_its_path(
    store: StoreUnderTest, name: str
) -> None:
    value, path = REFUSED[name]
    streams = store.streams()
    writer = streams.open("s")
    with pytest.raises(StreamSerializationError) as caught:
        writer.append(value)
    assert caught.value.path.startswith(path)
    assert caught.value.path in str(caught.value)
    assert caught.value.code == "not_json"
    with pytest.raises(StreamSerializationError):
        writer.push(value)
    assert writer.append("usable") == 0
    assert read_back(streams, writer) == ["usable"]


def nested(depth: int, leaf: Any = 0) -> tuple[Any, Any]:
    lists, dicts = leaf, leaf
    for _ in range(depth):
        lists, dicts = [lists], {"k": dicts}
    return lists, dicts


def test_nesting_passes_up_to_512_levels(store: StoreUnderTest) -> None:
    streams = store.streams()
    writer = streams.open("s")
    kept = [*nested(512), *nested(512, 10**5000), *nested(512, "\x00")]
    for value in kept:
        writer.append(value)
    for depth in (513, 2_000, 100_000):
        for value in nested(depth):
            with pytest.raises(StreamSerializationError) as caught:
                writer.append(value)
            assert caught.value.path.startswith("$")
    assert read_back(streams, writer) == kept


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=12,
)


@hypothesis_settings(
    max_examples=15,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(chunks=st.lists(JSON, min_size=1, max_size=20))
def test_any_list_of_json_values_comes_back(
    store: StoreUnderTest, chunks: list[Any]
) -> None:
    streams = store.streams()
    writer = streams.open("s")
    half = len(chunks) // 2
    writer.extend(chunks[:half])
    for chunk in chunks[half:]:
        writer.append(chunk)
    log = read_back(streams, writer)
    assert [spelled(v) for v in log] == [spelled(v) for v in chunks]
    streams.delete("s")
