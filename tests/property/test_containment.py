"""Containment of predicates, and what is left of one beside another, against their values on records."""

from __future__ import annotations

from typing import Any

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.predicates import Predicate
from mudkit.predicates.containment import contains, overlap, remainder, restrict
from mudkit.predicates.tree import text_of

NUMBERS = st.integers(-3, 3)
TEXTS = st.sampled_from("abc")
PLACES = st.tuples(st.integers(-3, 3), st.integers(-3, 3))


@st.composite
def atoms(draw: st.DrawFn) -> str:
    column = draw(st.sampled_from(["x", "y", "t", "x + y", "receiver.x"]))
    is_text = column == "t"
    constant = f"'{draw(TEXTS)}'" if is_text else str(draw(NUMBERS))
    kind = draw(st.integers(0, 7))
    if kind == 0:
        return f"{column} IS NULL"
    if kind == 1:
        listed = draw(st.lists(TEXTS.map(repr) if is_text else NUMBERS.map(str), min_size=1, max_size=3))
        return f"{column} IN ({', '.join(listed)})"
    if kind == 2:
        other = f"'{draw(TEXTS)}'" if is_text else str(draw(NUMBERS))
        return f"{column} BETWEEN {constant} AND {other}"
    if kind == 3:
        south, west = draw(PLACES)
        return f"within_box(loc, {south}, {west}, {south + draw(st.integers(0, 3))}, {west + draw(st.integers(0, 3))})"
    if kind == 4:
        lat, lon = draw(PLACES)
        km = draw(st.sampled_from([0, 100, 111.3, 222.6, 400]))
        return draw(
            st.sampled_from(
                [
                    f"within_km(loc, point({lat}, {lon}), {km})",
                    f"distance_km(point({lat}, {lon}), loc) <= {km}",
                ]
            )
        )
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    return f"{column} {operator} {constant}" if kind < 7 else f"{constant} {operator} {column}"


CONDITIONS = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda three: f"({' '.join(three)})"),
        inner.map(lambda one: f"(NOT {one})"),
    ),
    max_leaves=5,
)
VALUES: st.SearchStrategy[Any] = st.one_of(NUMBERS, NUMBERS, TEXTS, st.just(None), st.just(True))
RECORDS = st.lists(
    st.fixed_dictionaries({}, optional={"x": VALUES, "y": NUMBERS, "t": VALUES, "loc": PLACES}),
    min_size=8,
    max_size=25,
)


def list_matching(
    predicate: Predicate | None, records: list[dict[str, Any]], reader: dict[str, Any]
) -> set[int]:
    """Return the numbers of the records that match."""
    return {
        number
        for number, record in enumerate(records)
        if predicate is None or predicate(record, receiver=reader) is True
    }


@given(CONDITIONS, CONDITIONS, RECORDS, VALUES)
@examples(200)
def test_contained_predicate_matches_no_other_record(
    first: str, second: str, records: list[dict[str, Any]], x: Any
) -> None:
    larger, smaller = Predicate(first), Predicate(f"({second}) AND {first}")
    reader = {"x": x}
    assert contains(larger, larger)
    assert contains(larger, smaller)
    for one, other in ((larger, Predicate(second)), (Predicate(second), larger)):
        if contains(one, other):
            assert list_matching(other, records, reader) <= list_matching(one, records, reader)


@given(CONDITIONS, CONDITIONS, RECORDS, VALUES)
@examples(200)
def test_remainder_matches_what_is_not_covered(
    first: str, second: str, records: list[dict[str, Any]], x: Any
) -> None:
    query, covered = Predicate(first), Predicate(second)
    matching, known = (list_matching(predicate, records, {"x": x}) for predicate in (query, covered))
    rest = remainder(query, covered)
    if rest is not None:
        assert list_matching(rest, records, {"x": x}) == matching - known
    else:
        assert not matching - known or not matching & known
    assert 0.0 <= overlap(query, covered) <= 1.0
    if overlap(query, covered) == 0.0:
        assert not matching & known


@given(CONDITIONS, CONDITIONS, RECORDS, VALUES)
@examples(100)
def test_restricted_predicate_is_that_of_its_parts(
    first: str, second: str, records: list[dict[str, Any]], x: Any
) -> None:
    """Its text is written anew, with parameters in place of the constants."""
    whole = Predicate(f"({first}) AND lookup('t', x, 'y') = 1 AND ({second})")
    parts = Predicate(f"({first}) AND ({second})")
    rest = restrict(whole, lambda part: "lookup" not in text_of(part))
    assert rest is not None
    assert [rest(record, receiver={"x": x}) for record in records] == [
        parts(record, receiver={"x": x}) for record in records
    ]
    assert restrict(whole, lambda part: False) is None
