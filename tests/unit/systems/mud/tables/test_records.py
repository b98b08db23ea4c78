"""What is a key and a record, and hashes of values: equal for equal records, whatever the order of their columns."""

from __future__ import annotations

import json
import re
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import ParameterError
from mudkit.fleet.store import MemoryStore
from mudkit.systems.mud.tables.records import (
    MAX_KEY_BYTES,
    MAX_RECORD_BYTES,
    check_key,
    check_record,
    value_hash,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=3) | st.floats(-1e9, 1e9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
records = st.dictionaries(st.text(max_size=3), values, max_size=4)


def test_no_record_has_no_hash():
    assert value_hash(None) is None
    assert value_hash({}) is not None


def test_it_has_sixteen_hexadecimal_digits():
    assert re.fullmatch("[0-9a-f]{16}", value_hash({"topic": "arts"}))


def test_it_is_the_same_in_every_process():
    assert value_hash({"topic": "arts", "n": 1}) == "a66f15a89fc7675c"


@given(records)
def test_the_order_of_columns_does_not_count(record):
    turned = {name: record[name] for name in reversed(record)}
    assert value_hash(turned) == value_hash(record)
    assert value_hash({"deep": [turned]}) == value_hash({"deep": [record]})


@given(records)
def test_it_outlives_the_way_through_json_and_stores(record):
    assert value_hash(json.loads(json.dumps(record))) == value_hash(record)
    assert value_hash(msgspec.msgpack.decode(msgspec.msgpack.encode(record))) == value_hash(record)


@given(records, records)
def test_other_records_have_other_hashes(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (value_hash(one) == value_hash(other)) is same


@pytest.mark.parametrize("other", [{"a": 2}, {"b": 1}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"a": [1]}])
def test_each_part_counts(other):
    assert value_hash(other) != value_hash({"a": 1})


class Text(str):
    """As numpy's texts are."""


WHOLE = [-(1 << 63), (1 << 63) - 1]
TOO_LARGE = [-(1 << 63) - 1, 1 << 63]


@pytest.mark.parametrize("given_", [
    {}, {"a": "text", "b": 1, "c": 1.5, "d": True, "e": None}, MappingProxyType({"a": 1}), {Text("a"): Text("b")},
    *({"a": number} for number in WHOLE), {"a": WHOLE}, {"a": (1, {"b": WHOLE})},
])  # fmt: skip
def test_a_record_is_names_with_json_values(given_):
    record = check_record(given_)
    assert type(record) is dict
    assert record == json.loads(json.dumps(dict(given_)))
    assert all(type(name) is str for name in record)


@pytest.mark.parametrize("odd", [
    None, 5, [], ["a"], [("a", 1)], "a", {1: "a"}, {"a": 1j}, {"a": 1, 2: "b"}, {"key": 1}, {"a": float("nan")}, {"a": [float("inf")]},
    {"a": object()}, {"a": {1: 2}}, {"a": b"b"}, {"a": "\udc00"}, {"\udc00": 1},
    *({"a": number} for number in TOO_LARGE), *({"a": [number]} for number in TOO_LARGE),
])  # fmt: skip
def test_what_is_no_record_is_refused(odd):
    with pytest.raises(ParameterError, match="record is not usable"):
        check_record(odd)


@pytest.mark.parametrize(
    "key", ["a", "a17", " ", "ü", "\ud7ff", "\ue000", "a" * MAX_KEY_BYTES, "ü" * (MAX_KEY_BYTES // 2)]
)
def test_a_key(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        None,
        5,
        b"a",
        "a\nb",
        "a" * (MAX_KEY_BYTES + 1),
        "ü" * (MAX_KEY_BYTES // 2 + 1),
        "\ud800",
        "a\udfff",
        ["a"],
    ],
)
def test_what_is_no_key(key):
    with pytest.raises(ParameterError, match="primary key is not usable"):
        check_key(key)


def test_a_record_is_given_as_a_dict_of_its_own():
    data = {"a": 1}
    made = check_record(data)
    assert made == data
    assert made is not data
    assert check_record({}) == {}


def test_a_record_may_be_as_large_as_it_is_said():
    room = MAX_RECORD_BYTES - len('{"a":""}')
    check_record({"a": "x" * room})
    with pytest.raises(ParameterError, match="65,537 bytes"):
        check_record({"a": "x" * (room + 1)})


def _deep() -> list:
    inner: list = []
    for _ in range(100_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize("value", [
    (1, 2), [(30.27, -97.74)], {"x": (1,)}, float("nan"), float("inf"), {1, 2}, b"bytes", 2**70, {1: 2},
    _deep(),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_a_record_that_is_let_in_can_be_stored_and_sent(value):
    """It is refused at once, or it is given as it will come back."""
    try:
        made = check_record({"a": value})
    except ParameterError:
        return
    store = MemoryStore()
    store.put("row", made)
    assert store.get("row") == made
    assert json.loads(json.dumps(made, allow_nan=False)) == made
