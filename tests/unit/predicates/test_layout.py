"""Where names are, and records as JSON."""

import datetime as dt
import decimal
import json

import numpy as np
import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
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
        "extra": "json",
        "thing": "struct",
    },
    receiver="profile",
)


def find(*path, scope="record"):
    return LAYOUT.find(Name(scope, path))


def test_names_are_found():
    assert find("price") == Typed(Column("price", "number"), "")
    assert find("loc", "lat") == Typed(Column(("lat", "lon"), "point"), "lat")
    assert find("home", "city") == Typed(Column("home.city", "string"), "")
    assert find("extra", "a", "b") == Whole(Column("extra", "json"), ("a", "b"))
    assert find("a", "b", scope="receiver") == Whole(Column("profile", "json"), ("a", "b"))
    assert find("user", scope="auth") is None
    assert isinstance(find("home"), Group)
    assert find("home").lat == Column("home.lat", "number")
    assert find("thing").kinds == Group(None, (), None, None).kinds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "prise = 1",
            "There is no record.prise in the layout.*\n.*\n *\\^\\^\\^\\^\\^\n.*\n.*did you mean 'price'",
        ),
        ("loc.height = 1", "no record.loc.height"),
        ("price.x = 1", "no record.price.x"),
        ("thing.x = 1", "no record.thing.x"),
        ("home.town = 'x'", "no record.home.town"),
    ],
)
def test_unknown_names_are_errors(text, message):
    for dialect in ("sqlite", "spark"):
        with pytest.raises(PredicateError, match=message):
            Predicate(text).sql(dialect, LAYOUT)


def test_invalid_layouts_are_errors():
    with pytest.raises(PredicateError, match="kind that does not exist"):
        Layout(record={"a": "int"})
    with pytest.raises(PredicateError, match="Two columns"):
        Layout(record={"a": Column(("x", "y"), "number")})
    with pytest.raises(PredicateError, match="Expected a Layout"):
        Predicate("a = 1").sql("sqlite", {"record": "data"})
    with pytest.raises(PredicateError, match="no columns of this kind"):
        Predicate("a = 1").sql("sqlite", Layout(record={"a": "date"}))


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
    deep = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert json.loads(to_json(deep))
    assert to_json({1: 2, "a\0": 3}) == "{}"
