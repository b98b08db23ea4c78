"""Containment of predicates by examples, and what is left of a query (Mobius 6 and 8)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicate_strategies import build_predicate, conditions, scopes

from mudkit.predicates import Predicate
from mudkit.predicates.containment import contains, overlap, remainder


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 1", "n > 1"), ("n > 1", "topic = 'arts' AND n > 1"), ("n > 1 AND topic = 'arts'", "topic = 'arts' AND n > 1"),
    ("n > 1", "n > 1 -- much\n AND record.topic = 'arts'"), ("a = 1 OR b = 2", "(a = 1 OR b = 2) AND c = 3"),
    ("n BETWEEN 1 AND 5", "n >= 1 AND n <= 5 AND a = 1"), ("a IN (1, 'x')", "b = 1 AND a IN (1, 'x')"),
    ("a IN (0, 8)", "a IN (8, 0)"), ("a IN (8, 0) AND b = 1", "b = 1 AND a IN (0, 8) AND c = 1"),
])  # fmt: skip
def test_query_with_more_conditions_is_contained(larger, smaller):
    assert contains(Predicate(larger), Predicate(smaller)) is True


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 1 AND topic = 'arts'", "n > 1"), ("n > 1", "n >= 1"), ("n = 1", "n = '1'"),
    ("n = 1", "n = TRUE"), ("n > 1", "n > 1 OR a = 1"), ("n > 1", "NOT n > 1"), ("n > 1", "receiver.n > 1"),
    ("n > 1", "m > 1"), ("n - 1 > 2", "n + 1 > 2"), ("lower(a) = 'x'", "upper(a) = 'x'"), ("a.b = 1", "b = 1"),
    ("a IN (1, 2)", "a IN (1, 2, 3)"), ("a IN (1)", "a IN (1, NULL, 'x')"), ("within_km(p, point(1, 2), 5)", "within_km(p, point(1, 3), 5)"),
    ("a LIKE 'x%'", "a LIKE 'y%'"), ("a IS NULL", "b IS NULL"), ("starts_with(a, 'x')", "starts_with('x', a)"),
    ("a = b", "a = 'b'"), ("a > b", "b > a"),
])  # fmt: skip
def test_query_without_the_same_conditions_is_not_contained(larger, smaller):
    assert contains(Predicate(larger), Predicate(smaller)) is False


def test_query_without_predicate_contains_all_and_is_contained_in_none():
    assert contains(None, Predicate("n = 1"))
    assert contains(None, None)
    assert not contains(Predicate("n = 1"), None)


def test_constants_are_compared_by_their_bound_values():
    text = "n > :low AND a = sender.x AND p IN :l"
    places = [(1, 2), (3, 4)]

    def query(low: Any, x: Any, points: list[Any]) -> Predicate:
        return Predicate(text, low=low, l=points).bind(sender={"x": x})

    base = query(1, "x", places)
    assert contains(base, query(1.0, "x", places[::-1]))
    assert not contains(base, query(0, "x", places))
    assert not contains(base, query(1, "y", places))
    assert not contains(base, query(1, "x", [(1, 2)]))
    assert contains(base, Predicate("a = 'x' AND b = 0 AND p IN :l AND n > 1", l=places))


def conjoin(parts: list[str]) -> Predicate | None:
    return build_predicate(" AND ".join(f"({part})" for part in parts))


condition_lists = st.lists(conditions, min_size=1, max_size=3)


@given(condition_lists, st.data(), st.lists(conditions, max_size=2), st.lists(scopes, min_size=1, max_size=4))
def test_containing_query_matches_what_the_contained_one_matches(parts, data, extra, rows):
    larger, smaller = conjoin(parts), conjoin(data.draw(st.permutations([*parts, *extra])))
    if larger is None or smaller is None:
        return
    assert contains(larger, smaller)
    check_containment(larger, smaller, rows)


operands = st.sampled_from(
    ["1", "2", "'1'", "TRUE", "NULL", "a", "b", "receiver.a", "-1", "a + 1", "a - 1", "point(1, 2)"]
)
atoms = st.one_of(
    st.tuples(operands, st.sampled_from(["=", "<>", "<", "<=", ">"]), operands).map(" ".join),
    st.tuples(
        operands,
        st.sampled_from(["IN", "NOT IN"]),
        st.lists(st.sampled_from(["1", "2", "'1'", "NULL"]), max_size=3),
    ).map(lambda t: f"{t[0]} {t[1]} ({', '.join(t[2])})"),
    operands.map("{} IS NULL".format),
)
predicates = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " AND ".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " OR ".join(parts) + ")"),
        inner.map("NOT ({})".format),
    ),
    max_leaves=4,
)
column_values = st.sampled_from([None, 1, 2, 3, "1", True, (1, 2)])
row_scopes = st.fixed_dictionaries(
    {
        "record": st.fixed_dictionaries({"a": column_values, "b": column_values}),
        "receiver": st.fixed_dictionaries({"a": column_values}),
        "auth": st.just({}),
    }
)


@given(
    predicates, st.lists(predicates, min_size=1, max_size=10), st.lists(row_scopes, min_size=3, max_size=10)
)
def test_contained_queries_match_no_record_beyond_the_larger_one(larger, others, rows):
    first = build_predicate(larger)
    for text in others:
        second = build_predicate(text)
        if first is None or second is None:
            continue
        for large, small in ((first, second), (second, first)):
            if contains(large, small):
                check_containment(large, small, rows)


def check_containment(larger: Predicate, smaller: Predicate, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        matched = [
            predicate(row["record"], receiver=row["receiver"], auth=row["auth"]) is True
            for predicate in (smaller, larger)
        ]
        assert matched != [True, False]


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 1", "n > 2"), ("n >= 1", "n > 1"), ("n > 1", "1 < n"), ("n > 1", "n = 2"), ("n > 1", "n IN (2, 3)"),
    ("n BETWEEN 1 AND 9", "n > 1 AND n < 9"), ("n <> 5", "n > 5"), ("n <> 5", "n = 4"), ("NOT n < 1", "n > 3"),
    ("n NOT BETWEEN 1 AND 3", "n > 3"), ("NOT (a = 1 OR n < 3)", "a = 2 AND n = 3"), ("n IS NOT NULL", "n > 1"),
    ("t >= 'b'", "t > 'b' AND t < 'c'"), ("t IN ('a', 'b')", "t = 'a'"), ("t IN ('a', 'b', 'c')", "t IN ('c', 'a')"),
    ("t = 'a' OR t = 'b'", "t = 'b'"), ("t = 'a' OR t = 'b'", "t IN ('a', 'b') AND n = 1"), ("t = 'a' OR n = 1", "n = 1"),
    ("n > 1", "n > 2 OR n = 5"), ("TRUE", "n = 1"), ("x + y > 1", "x + y > 2"), ("lower(t) IN ('a', 'b')", "lower(t) = 'a'"),
    ("lat BETWEEN 0 AND 9 AND lon BETWEEN 0 AND 9", "lat BETWEEN 1 AND 2 AND lon BETWEEN 3 AND 4 AND t = 'a'"),
    ("within_box(loc, 0, 0, 9, 9)", "within_box(loc, 1, 2, 3, 4)"), ("within_box(loc, 0, 0, 9, 9)", "within_box(loc, 0, 0, 9, 9) AND n = 1"),
    ("within_km(loc, point(30, -97), 9)", "within_km(loc, point(30, -97), 5)"),
    ("within_km(loc, point(30, -97), 9)", "within_km(loc, point(30.01, -97), 5)"),
    ("within_km(loc, point(30, -97), 9)", "distance_km(point(30, -97), loc) <= 5"),
    ("within_km(loc, receiver.loc, 9)", "within_km(loc, receiver.loc, 9) AND n = 1"),
])  # fmt: skip
def test_query_within_bounds_is_contained(larger, smaller):
    assert contains(Predicate(larger), Predicate(smaller)) is True


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 2", "n > 1"), ("n > 1", "n >= 1"), ("n < 9", "n <= 9"), ("n > 1", "n = '2'"), ("n > 1", "n IN (2, '3')"), ("n > 1", "n IN (1, 2)"),
    ("n <> 5", "n >= 5"), ("n <> 5", "n = 'a'"), ("n <> 5", "n IS NOT NULL"), ("n IS NULL", "n > 1"), ("t IN ('a', 'b')", "t IN ('a', 'c')"),
    ("t = 'a' OR t = 'b'", "t IN ('a', 'c')"), ("n > 1", "n > 2 OR n = 0"), ("n > 1 OR n IS NULL", "t = 'a'"), ("x > 1", "x + y > 2"),
    ("lat BETWEEN 0 AND 9 AND lon BETWEEN 0 AND 9", "lat BETWEEN 1 AND 2"), ("lat BETWEEN 0 AND 9", "lat BETWEEN 1 AND 9.1"),
    ("within_box(loc, 0, 0, 9, 9)", "within_box(loc, 1, 2, 3, 9.5)"), ("within_box(loc, 0, 0, 9, 9)", "within_box(home, 1, 2, 3, 4)"),
    ("within_box(loc, 0, 170, 9, -170)", "within_box(loc, 1, 0, 2, 1)"),
    ("within_km(loc, point(30, -97), 9)", "within_km(loc, point(30.1, -97), 5)"),
    ("within_km(loc, point(30, -97), 5)", "within_km(loc, point(30, -97), 9)"),
    ("n > receiver.n", "n > 5"), ("n > 1", "n + 1 > 5"),
])  # fmt: skip
def test_query_beyond_bounds_is_not_contained(larger, smaller):
    assert contains(Predicate(larger), Predicate(smaller)) is False


def test_many_alternatives_are_compared_by_what_they_share():
    """Ten alternatives of two: 1,024 cases are not listed, but the bound that all of them have is known."""
    many = " AND ".join(f"(a{number} = 1 OR b{number} = 1)" for number in range(10))
    assert contains(Predicate("n > 1"), Predicate(f"n > 2 AND {many}"))
    assert not contains(Predicate("a0 = 1 OR b0 = 2"), Predicate(many))


@pytest.mark.parametrize(("query", "covered", "rest"), [
    ("lat >= 30", "lat >= 30.15", "(lat >= 30) AND NOT (lat >= 30.15)"),
    ("t IN ('a', 'b', 'c')", "t = 'a'", "(t IN ('a', 'b', 'c')) AND NOT (t = 'a')"),
    ("n > 1", "t = 'a'", "(n > 1) AND (NOT (t = 'a') OR (t = 'a') IS NULL)"),
    (None, "n > 1", "(TRUE) AND (NOT (n > 1) OR (n > 1) IS NULL)"),
    ("n > 1", "n > 0", None), ("n > 1", "n < 1", None), ("t = 'a'", "t = 'b'", None), ("n > 1", None, None), ("n > 1", "n = 'a'", None),
])  # fmt: skip
def test_remainder_is_asked_as_a_text(query, covered, rest):
    """NULL of what is covered counts as not covered, unless the query excludes it."""
    query, covered = (None if text is None else Predicate(text) for text in (query, covered))
    remaining = remainder(query, covered)
    assert (None if remaining is None else remaining.text) == rest


def test_boxes_that_share_an_edge_have_records_in_common():
    """The edge belongs to both: its records are covered, and the rest is asked (Mobius 6)."""
    query, covered = Predicate("within_box(loc, 0, 0, 0, 3)"), Predicate("within_box(loc, 0, 3, 0, 3)")
    assert 0.0 < overlap(query, covered) < 0.01
    rest = remainder(query, covered)
    assert [rest({"loc": (0, lon)}) for lon in (0, 2, 3)] == [True, True, False]


def test_remainder_keeps_parameters():
    query, covered = (Predicate("lat BETWEEN :low AND :high", low=low, high=9) for low in (0, 4))
    rest = remainder(query, covered)
    assert [rest({"lat": lat}) for lat in (-1, 0, 3.9, 4, 9, 10)] == [False, True, True, False, False, False]


@pytest.mark.parametrize(("query", "covered", "share"), [
    ("n BETWEEN 0 AND 10", "n BETWEEN 5 AND 20", 0.5), ("t IN ('a', 'b', 'c', 'd')", "t IN ('a', 'x')", 0.25),
    ("lat BETWEEN 0 AND 10 AND lon BETWEEN 0 AND 10", "lat BETWEEN 5 AND 10 AND lon BETWEEN 5 AND 30", 0.25),
    ("n > 1", "n > 2", 0.5), ("n > 1", "n > 0", 1.0), ("n > 1", "n < 0", 0.0), ("n > 1", "n > 0 AND t LIKE 'a%'", 0.5),
    (None, "n > 1", 0.5), ("n IN (1, 2)", "n > 1", 0.5), ("n > 1", "n = 3", 0.5), ("n > 1", "n = 0", 0.0),
])  # fmt: skip
def test_overlap_is_the_covered_share(query, covered, share):
    assert overlap(None if query is None else Predicate(query), Predicate(covered)) == share
