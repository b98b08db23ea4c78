"""Checks of keys and records, and hashes of records."""

from __future__ import annotations

import datetime as dt
import json
import re
from decimal import Decimal
from types import MappingProxyType

import msgspec
import numpy as np
import pandas as pd
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


def test_value_hash_of_no_record_is_none():
    assert value_hash(None) is None
    assert value_hash({}) is not None


def test_value_hash_has_sixteen_hexadecimal_digits():
    assert re.fullmatch("[0-9a-f]{16}", value_hash({"topic": "arts"}))


def test_value_hash_is_the_same_in_every_process():
    assert value_hash({"topic": "arts", "n": 1}) == "a66f15a89fc7675c"


@given(records)
def test_value_hash_ignores_the_order_of_columns(record):
    reordered = {name: record[name] for name in reversed(record)}
    assert value_hash(reordered) == value_hash(record)
    assert value_hash({"deep": [reordered]}) == value_hash({"deep": [record]})


@given(records)
def test_value_hash_survives_json_and_msgpack(record):
    assert value_hash(json.loads(json.dumps(record))) == value_hash(record)
    assert value_hash(msgspec.msgpack.decode(msgspec.msgpack.encode(record))) == value_hash(record)


@given(records, records)
def test_value_hashes_are_equal_only_for_equal_records(one, other):
    is_same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (value_hash(one) == value_hash(other)) is is_same


@pytest.mark.parametrize("other", [{"a": 2}, {"b": 1}, {"a": "1"}, {"a": True}, {"a": None}, {}, {"a": [1]}])
def test_value_hash_depends_on_names_values_and_types(other):
    assert value_hash(other) != value_hash({"a": 1})


class Text(str):
    """Subclass of str, such as numpy's."""


INT64_ENDS = [-(1 << 63), (1 << 63) - 1]
OUTSIDE_INT64 = [-(1 << 63) - 1, 1 << 63]


@pytest.mark.parametrize("mapping", [
    {}, {"a": "text", "b": 1, "c": 1.5, "d": True, "e": None}, MappingProxyType({"a": 1}), {Text("a"): Text("b")},
    *({"a": number} for number in INT64_ENDS), {"a": INT64_ENDS}, {"a": (1, {"b": INT64_ENDS})},
])  # fmt: skip
def test_records_are_names_with_json_values(mapping):
    record = check_record(mapping)
    assert type(record) is dict
    assert record == json.loads(json.dumps(dict(mapping)))
    assert all(type(name) is str for name in record)


@pytest.mark.parametrize(("given", "stored"), [
    (np.int64(3), 3), (np.uint8(3), 3), (np.bool_(True), True), (np.float32(0.5), 0.5), (np.float64(0.5), 0.5), (np.str_("a"), "a"),
    (Decimal("0.5"), 0.5), (dt.datetime(2023, 11, 15, 1, tzinfo=dt.UTC), 1_700_010_000.0), (dt.datetime(2023, 11, 15, 1), 1_700_010_000.0),
    (dt.date(2023, 11, 15), 1_700_006_400.0), (np.datetime64("2023-11-15"), 1_700_006_400.0), (pd.Timestamp("2023-11-15 02:00", tz="Europe/Zurich"), 1_700_010_000.0),
    ([np.int64(1), (np.bool_(False),)], [1, [False]]), ({"n": np.int64(1)}, {"n": 1}),
])  # fmt: skip
def test_scalars_of_numpy_and_times_are_values(given, stored):
    """Times are numbers of seconds, as in predicates (design: kinds)."""
    record = check_record({"a": given})
    assert record == {"a": stored}
    assert json.loads(json.dumps(record)) == record
    assert type(record["a"]) is type(stored)


def build_nested_lists() -> list:
    inner: list = []
    for _ in range(100_000):
        inner = [inner]
    return inner


@pytest.mark.parametrize("data", [
    None, 5, [], ["a"], [("a", 1)], "a", {1: "a"}, {"a": 1j}, {"a": 1, 2: "b"}, {"key": 1}, {"a": float("nan")}, {"a": [float("inf")]},
    {"a": np.float32("nan")}, {"a": pd.NaT}, {"a": np.datetime64("NaT")}, {"a": np.uint64(1 << 63)}, {"a": np.array([1])},
    {"a": object()}, {"a": {1: 2}}, {"a": b"b"}, {"a": "\udc00"}, {"\udc00": 1}, {"a": {1, 2}}, {"a": build_nested_lists()},
    *({"a": number} for number in OUTSIDE_INT64), *({"a": [number]} for number in OUTSIDE_INT64),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_unusable_records_are_refused(data):
    with pytest.raises(ParameterError, match="record is not usable"):
        check_record(data)


@pytest.mark.parametrize(
    "key", ["a", "a17", " ", "ü", "\ud7ff", "\ue000", "a" * MAX_KEY_BYTES, "ü" * (MAX_KEY_BYTES // 2)]
)
def test_usable_keys(key):
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
def test_unusable_keys_are_refused(key):
    with pytest.raises(ParameterError, match="primary key is not usable"):
        check_key(key)


def test_check_record_returns_a_new_dict():
    data = {"a": 1}
    record = check_record(data)
    assert record == data
    assert record is not data
    assert check_record({}) == {}


def test_record_size_is_limited():
    max_text = MAX_RECORD_BYTES - len('{"a":""}')
    check_record({"a": "x" * max_text})
    with pytest.raises(ParameterError, match="65,537 bytes"):
        check_record({"a": "x" * (max_text + 1)})


@pytest.mark.parametrize("value", [(1, 2), [(30.27, -97.74)], {"x": (1,)}, -0.0])
def test_accepted_records_can_be_stored_and_sent_unchanged(value):
    record = check_record({"a": value})
    store = MemoryStore()
    store.put("row", record)
    assert store.get("row") == record
    assert json.loads(json.dumps(record, allow_nan=False)) == record
