"""Tokens of predicates: chained comparisons are errors, all else agrees with SQLite."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import PredicateError
from mudkit.predicates import Aggregates, Predicate

_BASE = sqlite3.connect(":memory:")

REFUSED = {
    "n = 1 IS NULL": "write (n = 1) IS NULL",
    "n + 1 = 2 IS NOT NULL": "write (n + 1 = 2) IS NOT NULL",
    "n = 1 IN (t, FALSE)": "write (n = 1) IN (t, FALSE)",
    "n = 1 NOT IN (t, (u)) AND a": "write (n = 1) NOT IN (t, (u))",
    "n < 1 BETWEEN t AND u AND a": "write (n < 1) BETWEEN t AND u",
    "s LIKE 'x' = TRUE": "write (s LIKE 'x') = TRUE",
    "n BETWEEN 1 AND 2 = TRUE": "write (n BETWEEN 1 AND 2) = TRUE",
    "n IS NULL IS NULL": "write (n IS NULL) IS NULL",
    "1 < n < 3": "write 1 < n AND n < 3, or put one of them in parentheses",
    "0 <= a + n <= 3 OR b": "write 0 <= a + n AND a + n <= 3, or put one of them in parentheses",
    "a = b = c": "write a = b AND b = c, or put one of them in parentheses",
    "a AND (b AND 1 < n < 3)": "write 1 < n AND n < 3, or put one of them in parentheses",
    "abs(1 < n < 3) = 1": "write 1 < n AND n < 3, or put one of them in parentheses",
    "NOT 1 < n < 3": "write 1 < n AND n < 3, or put one of them in parentheses",
}


@pytest.mark.parametrize("text", REFUSED)
def test_chained_comparisons_are_errors_with_a_remedy(text):
    with pytest.raises(PredicateError) as caught:
        Predicate(text)
    assert caught.value.summary == "Comparisons cannot be chained."
    assert caught.value.remedy == REFUSED[text]
    suggestion = caught.value.remedy.removeprefix("write ").partition(", or")[0]
    Predicate(suggestion)  # the suggestion is valid
    with pytest.raises(PredicateError, match="cannot be chained"):
        Aggregates(f"count({text})")


_VALUE = st.sampled_from(["n", "1", "2", "n + 1", "-n", "NULL", "(n)", "3 - n", "1e0+1", "1e0-1e0"])
_SIGN = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_AFTER = st.one_of(
    st.builds("{} {}".format, _SIGN, _VALUE),
    st.sampled_from(["IS NULL", "IS NOT NULL", "IN (1, 2)", "NOT IN (0, NULL)"]),
    st.builds("BETWEEN {} AND {}".format, _VALUE, _VALUE),
    st.builds("NOT BETWEEN {} AND {}".format, _VALUE, _VALUE),
)
_CONDITION = st.builds(
    "{}{} {}".format,
    st.sampled_from(["", "", "NOT ", "NOT NOT "]),
    _VALUE,
    st.lists(_AFTER, min_size=1, max_size=2).map(" ".join),
)
_TEXT = st.builds(
    "".join,
    st.lists(st.tuples(st.sampled_from([" AND ", " OR "]), _CONDITION).map("".join), min_size=1, max_size=4),
).map(lambda text: text.removeprefix(" AND ").removeprefix(" OR "))


@given(_TEXT, st.sampled_from([0, 1, 2, None]))
def test_accepted_comparisons_agree_with_sqlite(text, n):
    try:
        value = Predicate(text)({"n": n})
    except PredicateError as error:
        assert error.summary == "Comparisons cannot be chained."  # noqa: PT017 - or it is accepted
        return
    (expected,) = _BASE.execute(f"SELECT {text} FROM (SELECT ? AS n)", (n,)).fetchone()
    assert value == (None if expected is None else bool(expected))


NUMBERS = {
    "1e3+1": 1001, "1e3-1": 999, "1e3+1.5": 1001.5, "1.5e3-2": 1498, ".5e3+1": 501, "1e3-1e-3": 999.999,
    "1e+3+1e0-1": 1000, "1E2+n": 107, "1e2+(2)": 102, "1e-2": 0.01, "2e3--1": 2000, "/* 1e3+1 */ 1e3+1": 1001,
}  # fmt: skip


@pytest.mark.parametrize("written", NUMBERS)
def test_sign_after_an_exponent_is_an_operator(written):
    assert Predicate(f"s = '1e3+1' AND x = {written}")({"x": NUMBERS[written], "n": 7, "s": "1e3+1"}) is True


def test_error_positions_refer_to_the_given_text():
    with pytest.raises(PredicateError) as caught:
        Predicate("n = 1e3+1 AND m = 2e3-1 AND x ; y")
    assert str(caught.value).splitlines()[2].index("^") == len("  where:    n = 1e3+1 AND m = 2e3-1 AND x ")


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("s = 'a' AND n = 'x", "'x"),
        ('n = 1 AND "s = 1', '"s = 1'),
        ("s = 'a' /* 1 AND b", "/* 1 AND b"),
    ],
)
def test_last_quote_of_a_text_with_an_open_one_is_marked(text, marked):
    with pytest.raises(PredicateError, match="cannot be split into tokens") as caught:
        Predicate(text)
    where, carets = str(caught.value).splitlines()[1:3]
    assert where[carets.index("^") : carets.rindex("^") + 1] == marked
