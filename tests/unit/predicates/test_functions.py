from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from geopy.distance import great_circle
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import PredicateError
from mudkit.predicates import Point, Predicate, function
from mudkit.predicates.functions import find, names, remove
from mudkit.predicates.layout import Layout

lat = st.floats(-90, 90)
lon = st.floats(-180, 180)


@given(lat, lon, lat, lon)
def test_distance_agrees_with_a_reference(a: float, b: float, c: float, d: float) -> None:
    text = "distance_km(point(:a, :b), point(:c, :d)) BETWEEN :low AND :high"
    reference = great_circle((a, b), (c, d)).km
    assert (
        Predicate(text, a=a, b=b, c=c, d=d, low=reference * 0.999 - 1e-6, high=reference * 1.001 + 1e-6)()
        is True
    )


@pytest.fixture
def registered() -> Iterator[None]:
    yield
    for name in ("score", "where_is", "broken"):
        if find(name):
            remove(name)


@pytest.mark.usefixtures("registered")
def test_registered_function() -> None:
    calls = []

    @function("Score", returns="number")
    def score(price: float, weight: int) -> float:
        calls.append(price)
        return price * weight

    assert score(2, 3) == 6
    assert "score" in names()
    p = Predicate("SCORE(price, 2) > 10")
    assert [p({"price": x}) for x in (6, 5, "6", None)] == [True, False, None, None]
    assert calls == [2, 6.0, 5.0]  # never called with NULL
    with pytest.raises(PredicateError, match="score has no NumPy form"):
        p.numpy({"price": [1, 2]})
    with pytest.raises(PredicateError, match="a different number of arguments"):
        Predicate("score(price) > 1")
    with pytest.raises(PredicateError, match="takes a number"):
        Predicate("score('a', 1) > 1")


@pytest.mark.usefixtures("registered")
def test_registered_function_in_all_evaluators() -> None:
    @function(
        "score",
        returns="number",
        argument_kinds=("number",),
        numpy=lambda x: np.sqrt(x),
        spark="sqrt({0})",
    )
    def score(x):
        return float("inf") if x < 0 else x**0.5

    @function("where_is", returns="point", numpy=lambda s: [(1.0, float(len(x))) for x in s])
    def where_is(s: str) -> Point:
        return Point(1, len(s))

    data = [4, -1, None, "x"]
    p = Predicate("score(x) = 2")
    assert [p({"x": x}) for x in data] == [True, None, None, None]
    result = p.numpy({"x": data})
    assert result.filled(False).tolist() == [True, False, False, False]
    assert np.ma.getmaskarray(result).tolist() == [False, True, True, True]
    q = Predicate("distance_km(where_is(s), point(1, 3)) = 0")
    assert q({"s": "abc"}) is True
    assert q.numpy({"s": ["abc", "ab", None]}).filled(False).tolist() == [True, False, False]


@pytest.mark.usefixtures("registered")
def test_functions_that_raise_or_return_a_wrong_kind() -> None:
    @function("broken", returns="number")
    def broken(x: float) -> float:
        if x > 1:
            raise RuntimeError("no")
        return "text"  # type: ignore[return-value]

    p = Predicate("broken(x) = 1")
    assert p({"x": 1}) is None
    with pytest.raises(PredicateError, match="broken failed: RuntimeError: no"):
        p({"x": 2})


@pytest.mark.usefixtures("registered")
def test_numpy_form_takes_points_and_returns_truth_values() -> None:
    @function("score", returns="boolean", numpy=lambda places, n: (places[:, 0] > 30.5) & (n > 1))
    def score(place: Point, n: float) -> bool:
        return place.lat > 30.5 and n > 1

    columns = {"loc": [(30.0, -97.0), None, (31.0, -97.0), (31.0, -97.0)], "n": [2, 2, 2, 1]}
    p = Predicate("score(loc, n)")
    values = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    assert [p(row) for row in values] == [False, None, True, False]
    result = p.numpy(columns)
    assert result.filled(False).tolist() == [False, False, True, False]
    assert np.ma.getmaskarray(result).tolist() == [False, True, False, False]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("form", "problem"),
    [
        (lambda x: x[10], "score failed: IndexError"),
        (lambda x: x[:2], r"a wrong number of values(.|\n)*2(.|\n)*3"),
    ],
)
def test_failing_numpy_form_is_reported_by_name(form, problem) -> None:
    function("score", returns="number", argument_kinds=("number",), numpy=form)(_return_one)
    with pytest.raises(PredicateError, match=problem):
        Predicate("score(x) = 1").numpy({"x": [1, 2, 3]})


@pytest.mark.usefixtures("registered")
def test_function_without_a_form_for_spark_is_refused() -> None:
    function("score", returns="number", argument_kinds=("number",))(_return_one)
    layout = Layout(record={"x": "number"})
    with pytest.raises(PredicateError, match=r"@function\(…, spark='…'\)"):
        Predicate("score(x) = 1").sql(layout)


@pytest.mark.usefixtures("registered")
def test_new_predicates_use_the_latest_registration() -> None:
    function("score", returns="number")(_return_one)
    before = Predicate("score(x) = 1")
    function("score", returns="number")(_return_two)
    after = Predicate("score(x) = 1")
    assert before({"x": 0}) is True
    assert after({"x": 0}) is False


def _return_one(x: float) -> float:
    return 1


def _return_two(x: float) -> float:
    return 2


def test_lookup_is_a_join_by_primary_key() -> None:
    tables = {"users": {"ann": {"age": 30}, 5.0: {"age": 5}}}
    p = Predicate("lookup('users', owner, 'age') >= 21")
    assert [p({"owner": x}, tables=tables) for x in ("ann", "bob", 5, None, {"a": 1})] == [
        True,
        None,
        False,
        None,
        None,
    ]
    assert p.numpy({"owner": ["ann", "bob", 5]}, tables=tables).filled(False).tolist() == [True, False, False]
    with pytest.raises(PredicateError, match="only servers have"):
        p({"owner": "ann"})
    with pytest.raises(PredicateError, match=r"no such table(.|\n)*to do: +give it with tables="):
        p({"owner": "ann"}, tables={})


def test_function_of_a_column_and_a_constant_accepts_a_table_without_rows() -> None:
    for text in ("hour(ts, 'America/Chicago') < 9", "starts_with(lower(device), 'car')"):
        columns = {"ts": np.zeros(0), "device": np.zeros(0, dtype=object)}
        mask = Predicate(text).numpy(columns)
        assert mask is not None
        assert len(mask) == 0
