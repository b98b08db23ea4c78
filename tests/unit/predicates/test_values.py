from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mudkit.predicates.values import (
    BOOLEAN,
    LIST,
    NULL,
    NUMBER,
    POINT,
    STRING,
    STRUCT,
    Members,
    Point,
    attribute,
    boolean,
    kind_names,
    kind_of,
    number,
    point,
    string,
    value,
)

NOON = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (1, 1.0), (True, None), (2.5, 2.5), (float("nan"), None), (float("-inf"), None), (2**53, 2.0**53), (2**53 + 1, None), ("1", None), (None, None), (np.int64(3), 3.0), (np.uint64(2**60), None),
        (np.float32(0.5), 0.5), (np.bool_(True), None), (decimal.Decimal("1.5"), 1.5), (decimal.Decimal("nan"), None), (decimal.Decimal("1e999"), None), (NOON, NOON.timestamp()), (NOON.replace(tzinfo=None), NOON.timestamp()),
        (NOON.date(), NOON.timestamp() - 43_200), (np.datetime64("2024-02-29T12:00"), NOON.timestamp()), (np.datetime64("NaT"), None), (pd.NaT, None), (pd.Timestamp(NOON), NOON.timestamp()), (pd.NA, None), ([1], None), (1j, None), (b"1", None),
    ],
)  # fmt: skip
def test_numbers_are_converted(data: Any, expected: float | None) -> None:
    assert number(data) == expected
    assert (
        value(data) is data if isinstance(data, bool) else type(value(data)) in (float, str, bool, type(None))
    )


def test_times_keep_microseconds() -> None:
    assert number(NOON.replace(microsecond=123_457)) == NOON.timestamp() + 0.123457


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("a", "a"),
        ("", ""),
        ("é😀", "é😀"),
        ("a\0", None),
        ("\ud800", None),
        (np.str_("a"), "a"),
        (1, None),
        (b"a", None),
    ],
)
def test_strings_are_converted(data: Any, expected: str | None) -> None:
    assert string(data) == expected
    assert value(data) == expected or not isinstance(data, str)


def test_booleans_are_converted() -> None:
    assert [boolean(x) for x in (True, False, np.bool_(True), 1, 0.0, "true", None)] == [
        True,
        False,
        True,
        None,
        None,
        None,
        None,
    ]
    assert value(np.bool_(False)) is False


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((1, 2), Point(1, 2)), ([1, 2.5], Point(1, 2.5)), ({"lat": 1, "lon": 2}, Point(1, 2)), ({"lat": 1, "lon": 2, "x": 3}, Point(1, 2)), (np.array([1, 2]), Point(1, 2)), ((90, -180), Point(90, -180)), ((91, 0), None),
        ((0, 181), None), ((1,), None), ((1, 2, 3), None), ((1, "2"), None), ({"lat": 1}, None), ((True, 1), None), (np.array(5), None), ("ab", None), (None, None), ((float("nan"), 0), None),
    ],
)  # fmt: skip
def test_points_are_converted(data: Any, expected: Point | None) -> None:
    assert point(data) == expected
    if not isinstance(data, (dict, str)):
        assert value(data) == expected


def test_structs_are_values_and_have_attributes() -> None:
    struct = {"city": "Austin", "loc": [1, 2]}
    assert value(struct) is struct
    assert kind_of(value(struct)) == STRUCT
    assert attribute(struct, "city") == "Austin"
    assert attribute(struct["loc"], "lon") == 2
    assert attribute((95, 2), "lat") is None
    assert attribute(5, "lat") is None
    assert attribute((1, 2), "x") is None


def test_kinds_of_values_and_their_names() -> None:
    values = [None, 1.0, "a", True, Point(1, 2), {}, Members.of([])]
    assert [kind_of(item) for item in values] == [NULL, NUMBER, STRING, BOOLEAN, POINT, STRUCT, LIST]
    assert kind_names(NUMBER | STRING) == "number or string"
    assert kind_names(NULL) == "NULL"


def test_members_hold_values_of_their_kinds() -> None:
    assert [Members.of([1.0, 2.0]).holds(x) for x in (1.0, 3.0, "1", None, True, {})] == [
        True,
        False,
        None,
        None,
        None,
        None,
    ]
    assert [Members.of([1.0, "a", None]).holds(x) for x in (1.0, 3.0, "a", "b")] == [True, None, True, None]
    assert [Members.of([]).holds(x) for x in (1.0, None, {})] == [False, False, False]
    assert [Members.of([True]).holds(x) for x in (True, False, 1.0)] == [True, False, None]
    assert Members.of([Point(1, 2)]).holds(Point(1, 2)) is True
