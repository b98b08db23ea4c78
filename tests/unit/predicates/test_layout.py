"""Layouts: columns of names, and records as JSON."""

import datetime as dt
import decimal
import json

import numpy as np

from mudkit.predicates.layout import Column, Group, Layout, Typed, Whole, to_json
from mudkit.predicates.tree import Name
from mudkit.predicates.values import value

LAYOUT = Layout(
    record={
        "price": "number",
        "loc": Column(("lat", "lon"), "point"),
        "home.city": "string",
        "home.lat": "number",
        "home.lon": "number",
        "extra": "variant",
        "thing": "struct",
    },
    receiver="profile",
)


def find(*path, scope="record"):
    return LAYOUT.find(Name(scope, path))


def test_names_are_resolved_to_columns():
    assert find("price") == Typed(Column("price", "number"), "")
    assert find("loc", "lat") == Typed(Column(("lat", "lon"), "point"), "lat")
    assert find("home", "city") == Typed(Column("home.city", "string"), "")
    assert find("extra", "a", "b") == Whole(Column("extra", "variant"), ("a", "b"))
    assert find("a", "b", scope="receiver") == Whole(Column("profile", "variant"), ("a", "b"))
    assert find("user", scope="auth") is None
    assert isinstance(find("home"), Group)
    assert find("home").lat == Column("home.lat", "number")
    assert find("thing").kinds == Group(None, (), None, None).kinds


def test_json_has_the_values_of_the_record():
    record = {
        "i": 7, "big": 2**53 + 1, "f": 0.1, "nan": float("nan"), "inf": -np.inf, "np": np.float32(0.5), "ni": np.int64(3),
        "nb": np.bool_(True), "t": False, "s": 'é"\\\n😀', "nul": "a\0", "half": "\ud800", "none": None,
        "dec": decimal.Decimal("1.5"), "ts": dt.datetime(2020, 1, 1, 1, tzinfo=dt.UTC), "day": dt.date(2020, 1, 1),
        "d64": np.datetime64("2020-01-01T00:00:00.5"), "nat": np.datetime64("NaT"), "pair": (1.5, np.float64(2)),
        "array": np.array([1.0, 2.0]), "struct": {"a": {"b": [1, "x"]}, "loc": {"lat": 1, "lon": 2}}, "empty": {},
        "list": [], "object": object(), "huge": 1e300, "tiny": 5e-324, "zero": -0.0,
    }  # fmt: skip
    read = json.loads(to_json(record))
    for name in ("struct", "list"):
        assert read.pop(name) == record.pop(name)
    assert set(read) == set(record)
    for name, data in record.items():
        assert value(read[name]) == value(data), name


def test_json_nesting_is_bounded():
    nested = {}
    for _ in range(5000):
        nested = {"a": nested}
    assert json.loads(to_json(nested))
    assert to_json({1: 2, "a\0": 3}) == "{}"
