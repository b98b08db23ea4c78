"""Cases and situations: they cover the truth values that predicates have on messages."""

from __future__ import annotations

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.predicates import Language, Predicate
from mudkit.systems.sublim.check.cases import FALSE, NULL, TRUE, Cases, RandomChoices, Situations

LANGUAGE = Language(("message", "state", "clock"), bound=())
ATOMS = [
    "a < 3", "a >= 3", "a <> 5", "3 > a", "a = 'x'", "a IN (1, 3)", "a IN ('x', NULL)", "a IS NULL", "b < 'm'",
    "b <= 'x'", "f = TRUE", "f", "a BETWEEN 1 AND 5", "a + 1 < 3", "starts_with(b, 'x')", "NULL", "TRUE", "f > FALSE",
]  # fmt: skip
conditions = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=4,
)
values = st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, "", "m", "x", "xa", "z", True, False, {"s": 1}])
TRUTH_VALUES = {True: TRUE, False: FALSE, None: NULL}


@given(conditions, st.fixed_dictionaries({}, optional={"a": values, "b": values, "f": values}))
@examples(300)
def test_situations_include_the_truth_value_on_each_message(text, message):
    predicate = Predicate.parse(text, language=LANGUAGE)
    result = Situations([predicate])
    assert TRUTH_VALUES[predicate(message)] in result.truths(0)


@given(
    st.lists(conditions, min_size=2, max_size=3),
    st.fixed_dictionaries({}, optional={"a": values, "b": values, "f": values}),
)
@examples(300)
def test_situations_include_joint_truth_values_of_predicates(texts, message):
    predicates = [Predicate.parse(text, language=LANGUAGE) for text in texts]
    result = Situations(predicates)
    expected = tuple(TRUTH_VALUES[predicate(message)] for predicate in predicates)
    if result.count is not None:
        assert expected in set(
            zip(*(result.truths(number).tolist() for number in range(len(texts))), strict=True)
        )


@given(st.lists(st.integers(1, 5), max_size=4))
@examples(100)
def test_positions_match_the_cases_in_order(sizes):
    cases = Cases(dict(enumerate(sizes)), limit=10_000)
    case_list = list(cases.draw(RandomChoices("never used")))
    assert len(case_list) == cases.count
    assert [list(cases.positions(axis)) for axis in range(len(sizes))] == [
        [case[axis] for case in case_list] for axis in range(len(sizes))
    ]


def test_cases_beyond_the_limit_are_sampled_reproducibly():
    cases = Cases({"a": 10, "b": 20}, limit=50)
    sample = list(cases.draw(RandomChoices("some")))
    assert not cases.is_whole
    assert len(sample) == 50
    assert all(0 <= a < 10 and 0 <= b < 20 for a, b in sample)
    assert sample == list(cases.draw(RandomChoices("some")))
