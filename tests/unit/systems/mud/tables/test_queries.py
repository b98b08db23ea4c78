"""Static analysis of queries, which never excludes a matching record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
from mudkit.systems.mud.tables.queries import (
    asks_for_keys_only,
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
