"""Static analysis of queries, which never excludes a matching record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from predicate_strategies import build_predicate, conditions, scopes

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
from mudkit.systems.mud.tables.queries import (
    asks_for_keys_only,
    contains,
    key_of_point_query,
    keys_of,
    tables_of,
    tables_of_sent,
)
from mudkit.systems.mud.tables.records import SentPredicate

# -- keys


@pytest.mark.parametrize(("text", "keys"), [
    ("key = 'a'", ["a"]), ("'a' = key", ["a"]), ("key IN ('b', 'a', 'b')", ["a", "b"]),
    ("key = 'a' AND n > 1", ["a"]), ("n > 1 AND key IN ('a', 'b') AND key IN ('b', 'c')", ["b"]),
    ("key = 'a' AND key = 'b'", []), ("key = 5", []), ("key IN (1, 'a', NULL, TRUE)", ["a"]), ("key IN ()", []),
    ("key = NULL", []), ("record.key = 'a'", ["a"]), ("key = ''", [""]), ("key BETWEEN 'a' AND 'a'", None),
    ("key = 'a' OR n = 1", None), ("NOT key = 'a'", None), ("key <> 'a'", None), ("key NOT IN ('a')", None),
    ("key > 'a'", None), ("receiver.key = 'a'", None), ("key.x = 'a'", None), ("topic = 'a'", None),
    ("lower(key) = 'a'", None), ("key = topic", None), ("TRUE", None), ("key IS NULL", None),
])  # fmt: skip
def test_keys_of(text, keys):
    assert keys_of(Predicate(text)) == keys


@pytest.mark.parametrize(("text", "is_all"), [
    ("key = 'a'", True), ("key IN ('a', NULL) AND 'a' = key", True), ("key = 5", True),
    ("key = 'a' AND n > 1", False), ("key = 'a' OR n = 1", False), ("n = 1", False), ("key <> 'a'", False),
])  # fmt: skip
def test_asks_for_keys_only(text, is_all):
    assert asks_for_keys_only(Predicate(text)) == is_all
    assert not asks_for_keys_only(None)


@pytest.mark.parametrize(("text", "key"), [
    ("key = 'a'", "a"), ("'a' = key", "a"), ("key = 5", None), ("key = NULL", None), ("key IN ('a')", None),
    ("key = 'a' AND n > 1", None), ("key = 'a' AND key = 'a'", None), ("n = 1", None),
])  # fmt: skip
def test_only_key(text, key):
    assert key_of_point_query(Predicate(text)) == key


def test_keys_of_bound_parameters():
    assert keys_of(Predicate("key IN :l AND n = :n", l=["b", "a", None], n=1)) == ["a", "b"]
    assert keys_of(Predicate("key = :k", k="a")) == ["a"]
    assert keys_of(Predicate("key = sender.k AND n = 1").bind(sender={"k": "a"})) == ["a"]


def test_query_without_predicate_may_match_any_key():
    assert keys_of(None) is None


KEYS = ["", "a", "b", "c", "A", "5", "TRUE"]
key_atoms = st.sampled_from([
    "key = 'a'", "'b' = key", "key IN ('a', 'b', NULL)", "key IN ('b', 'c', 5)", "key NOT IN ('a')", "key <> 'a'",
    "NOT key = 'a'", "NOT key IN ('a', 'b')", "key = 5", "key = TRUE", "key = ''", "receiver.key = 'a'", "n = 1",
    "key = lower('A')", "lower(key) = 'a'", "key > 'a'", "key BETWEEN 'a' AND 'b'", "key LIKE 'a'", "key = record.other",
    "coalesce(key, 'b') = 'a'", "(key = 'a') = TRUE", "(key = 'a') = FALSE", "(key = 'a') IS NULL", "key IN ()",
])  # fmt: skip
key_conditions = st.recursive(
    key_atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(" AND ".join).map("({})".format),
        st.lists(inner, min_size=2, max_size=3).map(" OR ".join).map("({})".format),
        inner.map("NOT ({})".format),
    ),
    max_leaves=6,
)


@given(key_conditions, st.sampled_from([*KEYS, None]), st.integers(0, 1))
def test_keys_of_includes_every_matching_key(text, other, n):
    predicate = Predicate(text)
    keys = keys_of(predicate)
    for key in KEYS:
        is_match = predicate({"key": key, "other": other, "n": n}, receiver={"key": other}) is True
        if is_match:
            assert keys is None or key in keys
        if asks_for_keys_only(predicate):
            assert is_match == (key in keys)


# -- containment


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 1", "n > 1"), ("n > 1", "topic = 'arts' AND n > 1"), ("n > 1 AND topic = 'arts'", "topic = 'arts' AND n > 1"),
    ("n > 1", "n > 1 -- much\n AND record.topic = 'arts'"), ("a = 1 OR b = 2", "(a = 1 OR b = 2) AND c = 3"),
    ("n BETWEEN 1 AND 5", "n >= 1 AND n <= 5 AND a = 1"), ("a IN (1, 'x')", "b = 1 AND a IN (1, 'x')"),
    ("a IN (0, 8)", "a IN (8, 0)"), ("a IN (8, 0) AND b = 1", "b = 1 AND a IN (0, 8) AND c = 1"),
])  # fmt: skip
def test_query_with_more_conditions_is_contained(larger, smaller):
    assert contains(Predicate(larger), Predicate(smaller)) is True


@pytest.mark.parametrize(("larger", "smaller"), [
    ("n > 1 AND topic = 'arts'", "n > 1"), ("n > 1", "n > 2"), ("n > 1", "n >= 1"), ("n = 1", "n = '1'"),
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
    assert not contains(base, query(2, "x", places))
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


# -- joined tables


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("n = 1", []),
        ("n = 'lookup'", []),
        ("lookup('b', n, 'x') = 1", ["b"]),
        ("LOOKUP('b', n, 'x') = 1", ["b"]),
        ("lookup('b', lookup('a', n, 'x'), 'y') = 1 OR NOT lookup('b', 1, 'z')", ["b", "a"]),
    ],
)
def test_tables_of(text, tables):
    assert tables_of(Predicate(text)) == tables_of_sent(SentPredicate.of(Predicate(text))) == tables


def test_tables_of_no_predicate_and_of_a_parameter():
    assert tables_of(None) == tables_of_sent(None) == []
    predicate = Predicate("lookup(:t, n, 'x') = lookup(:t, n, 'y')", t="people")
    assert tables_of(predicate) == tables_of_sent(SentPredicate.of(predicate)) == ["people"]


@pytest.mark.parametrize(
    "text", ["lookup(n, 1, 'x') = 1", "lookup(NULL, 1, 'x') = 1", "lookup(lower('A'), 1, 'x') = 1"]
)
def test_joined_table_not_named_by_a_text_is_refused(text):
    with pytest.raises(PredicateError, match="must be a text"):
        tables_of(Predicate(text))
