"""Random predicates and the data that they look at, for the tests in which all evaluators must agree."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st

from mudkit.errors import PredicateError
from mudkit.predicates import Predicate
from mudkit.predicates.functions import TIME_PARTS

NAMES = ("a", "b", "c", "s", "p", "receiver.a", "receiver.p", "auth.s", "c.x", "p.lat", "c.p")
"""Any of them may hold a value of any kind."""

numbers = st.one_of(
    st.integers(-5, 5),
    st.sampled_from([0.0, -0.0, 0.5, 1e-300, 1e200, 1e308, -1e308, 2**53, -(2**53), 90, 180, -180, 1.7e9]),
    st.floats(-200, 200, allow_nan=False),
)
strings = st.one_of(
    st.sampled_from(["", "a", "A", "ab", "aab", "%", "_", "a%", "ü", "😀", "'", "\\", "$", "${x}", "1", "true", "-- x", '"', "\n", "America/Chicago"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=4),
)  # fmt: skip
points = st.tuples(
    st.one_of(st.sampled_from([0, 90, -90, 30.25]), st.floats(-90, 90, allow_nan=False)),
    st.one_of(st.sampled_from([0, 180, -180, -97.75]), st.floats(-180, 180, allow_nan=False)),
)
structs = st.fixed_dictionaries(
    {}, optional={"x": st.one_of(numbers, strings, st.none()), "p": points, "lat": numbers, "lon": numbers}
)
values = st.one_of(
    st.none(), st.booleans(), numbers, strings, points, points.map(list), points.map(lambda p: {"lat": p[0], "lon": p[1]}), structs,
    st.sampled_from([float("nan"), float("inf"), 2**53 + 1, 10**25, [1], [1, 2, 3], [], ["a", 1], {"lat": 91, "lon": 0}, "a\0"]),
)  # fmt: skip
_scope = st.fixed_dictionaries({}, optional=dict.fromkeys(("a", "b", "c", "s", "p"), values))
scopes = st.fixed_dictionaries({"record": _scope, "receiver": _scope, "auth": _scope})


def literal(item: Any) -> str:
    """Write a value in the language."""
    if item is None or isinstance(item, bool):
        return str(item).upper() if item is not None else "NULL"
    if isinstance(item, str):
        return "'" + item.replace("'", "''") + "'"
    return repr(float(item)) if isinstance(item, float) else str(item)


names = st.sampled_from(NAMES)


def _number(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        inner.map(lambda x: f"(- {x})"),
        inner.map(lambda x: f"abs({x})"),
        st.tuples(st.sampled_from(TIME_PARTS), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(_point, _point).map(lambda t: f"distance_km({t[0]}, {t[1]})"),
        text_.map(lambda x: f"length({x})"),
        st.tuples(inner, inner).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
    )


text_ = st.recursive(
    st.one_of(names, strings.map(literal)),
    lambda inner: st.one_of(
        inner.map(lambda x: f"lower({x})"),
        inner.map(lambda x: f"upper({x})"),
        st.tuples(inner, inner).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
    ),
    max_leaves=3,
)
_point = st.one_of(
    names,
    st.tuples(numbers, numbers).map(lambda t: f"point({literal(t[0])}, {literal(t[1])})"),
    st.tuples(names, names).map(lambda t: f"point({t[0]}, {t[1]})"),
)
number_ = st.recursive(st.one_of(names, numbers.map(literal)), _number, max_leaves=4)
anything = st.one_of(
    names,
    number_,
    text_,
    _point,
    st.sampled_from(["NULL", "TRUE", "FALSE"]),
    st.tuples(names, names).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
)
_of_one_kind = st.sampled_from([number_, text_, _point, st.sampled_from(["NULL", "TRUE", "FALSE"]) | names])
_sides = st.one_of(
    st.tuples(names, anything, anything),
    st.tuples(anything, names, names),
    _of_one_kind.flatmap(lambda kind: st.tuples(kind, kind, kind)),
)
"""Sides of a comparison, which is refused where both have a kind of their own and these differ."""
_any_items = st.lists(st.one_of(numbers, strings, st.booleans(), st.none()).map(literal), max_size=4)
_booleans = st.lists(st.sampled_from(["TRUE", "FALSE", "NULL"]), max_size=3)
_members = st.one_of(
    st.tuples(names, _any_items),
    st.tuples(number_, st.lists(numbers.map(literal), max_size=4)),
    st.tuples(text_, st.lists(strings.map(literal), max_size=4)),
)
_patterns = st.sampled_from(["a", "^a+$", ".", "", "(?i)a", "[", "ü|😀", "^$", "\\\\", "(a*)*$"]).map(literal)
atoms = st.one_of(
    st.tuples(_sides, st.sampled_from(["=", "<>", "<", "<=", ">", ">="])).map(lambda t: f"{t[0][0]} {t[1]} {t[0][1]}"),
    st.tuples(_sides, st.sampled_from(["BETWEEN", "NOT BETWEEN"])).map(lambda t: f"{t[0][0]} {t[1]} {t[0][1]} AND {t[0][2]}"),
    st.tuples(_members, st.sampled_from(["IN", "NOT IN"])).map(lambda t: f"{t[0][0]} {t[1]} ({', '.join(t[0][1])})"),
    st.tuples(anything, st.sampled_from(["IS NULL", "IS NOT NULL"])).map(" ".join),
    st.tuples(text_, st.sampled_from(["LIKE", "NOT LIKE"]), text_).map(" ".join),
    st.tuples(st.sampled_from(["starts_with", "contains"]), text_, text_).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
    st.tuples(text_, st.one_of(_patterns, names)).filter(lambda t: "'['" not in t[1]).map(lambda t: f"matches({t[0]}, {t[1]})"),
    st.tuples(_point, *[number_] * 4).map(lambda t: f"within_box({', '.join(t)})"), st.tuples(_point, _point, number_).map(lambda t: f"within_km({', '.join(t)})"),
    names, st.sampled_from(["TRUE", "FALSE", "NULL"]),
)  # fmt: skip
conditions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda t: f"({t[0]}) AND ({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}) OR ({t[1]})"),
        inner.map(lambda x: f"NOT ({x})"),
        st.tuples(inner, inner).map(lambda t: f"({t[0]}) = ({t[1]})"),
        st.tuples(inner, st.sampled_from(["IN", "NOT IN"]), _booleans).map(
            lambda t: f"({t[0]}) {t[1]} ({', '.join(t[2])})"
        ),
    ),
    max_leaves=5,
)


def build_predicate(text: str) -> Predicate | None:
    """Build a predicate; return None for a text that is refused for a type or a place that never fits."""
    try:
        return Predicate(text)
    except PredicateError as error:
        if re.search("takes|A predicate is a condition|is never TRUE|no such (place|box)", error.summary):
            return None
        raise
