"""Situations: what they say of a predicate is what the predicate says."""

from __future__ import annotations

from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.predicates import Language, Predicate
from mudkit.systems.sublim.check.cases import FALSE, NULL, TRUE, Situations

LANGUAGE = Language(("message", "state", "clock"), bound=())
ATOMS = [
    "a < 3", "a >= 3", "a <> 5", "3 > a", "a = 'x'", "a IN (1, 3)", "a IN ('x', NULL)", "a IS NULL", "b < 'm'",
    "b <= 'x'", "f = TRUE", "f", "a BETWEEN 1 AND 5", "a + 1 < 3", "starts_with(b, 'x')", "NULL", "TRUE", "f > FALSE",
]  # fmt: skip
texts = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("NOT ({})".format, inner)
        | st.builds("({}) AND ({})".format, inner, inner)
        | st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=4,
)
values = st.sampled_from([None, 0, 1, 2, 3, 4, 5, 6, "", "m", "x", "xa", "z", True, False, {"s": 1}])
THREE = {True: TRUE, False: FALSE, None: NULL}


@given(texts, st.fixed_dictionaries({}, optional={"a": values, "b": values, "f": values}))
@examples(300)
def test_what_is_true_of_a_message_is_true_in_some_situation(text, message):
    predicate = Predicate.parse(text, language=LANGUAGE)
    result = Situations([predicate])
    assert THREE[predicate(message)] in result.truths(0)


@given(
    st.lists(texts, min_size=2, max_size=3),
    st.fixed_dictionaries({}, optional={"a": values, "b": values, "f": values}),
)
@examples(300)
def test_predicates_are_true_together_in_some_situation_when_they_are(some, message):
    predicates = [Predicate.parse(text, language=LANGUAGE) for text in some]
    result = Situations(predicates)
    wanted = tuple(THREE[predicate(message)] for predicate in predicates)
    if result.count is not None:
        assert wanted in set(
            zip(*(result.truths(number).tolist() for number in range(len(some))), strict=True)
        )


def test_a_situation_is_told_in_words():
    result = Situations([Predicate.parse("a < 3 AND b = 'x'", language=LANGUAGE), None])
    answer = {result.describe(number) for number in range(result.count)}
    assert "message.a is NULL, message.b is x" in answer
    assert "message.a is 2.0, message.b is something else" in answer
    assert Situations([None]).describe(0) == "always"
