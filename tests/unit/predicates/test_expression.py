"""Values in the language of predicates."""

from __future__ import annotations

import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Language, Point
from mudkit.predicates.expression import Expression

SUBLIM = Language(("message", "state"), bound=(), schema={"message": {"pulse": "number"}})


@pytest.mark.parametrize(
    ("text", "message", "state", "wanted"),
    [
        ("message.pulse + state.x", {"pulse": 2}, {"x": 3}, 5.0),
        ("message.pulse / 0", {"pulse": 2}, {}, None),
        ("state.x", {}, {"x": "text"}, "text"),
        ("state.x", {}, {"x": True}, True),
        ("state.x", {}, {"x": [1, 2]}, Point(1.0, 2.0)),
        ("state.x", {}, {"x": b"bytes"}, None),
        ("'a text'", {}, {}, "a text"),
        ("coalesce(state.x, -1)", {}, {}, -1.0),
        ("message.pulse < 50", {"pulse": 2}, {}, True),
        ("state.x IN (1, 2)", {}, {"x": 2}, True),
        ("lookup('t', message.pulse, 'a')", {"pulse": 2}, {}, 7.0),
    ],
)
def test_it_has_a_value_of_the_language(text, message, state, wanted):
    assert Expression(text, language=SUBLIM)(message, state, tables={"t": {2: {"a": 7}}}) == wanted


def test_scopes_that_are_left_out_are_empty():
    assert Expression("coalesce(state.x, message.pulse, 3)", language=SUBLIM)() == 3.0
    assert Expression("coalesce(state.x, message.pulse, 3)", language=SUBLIM)({"pulse": 4}) == 4.0


def test_its_names():
    assert Expression("message.pulse + state.x.y", language=SUBLIM).names() == {
        "message": {"pulse"},
        "state": {"x.y"},
    }


@pytest.mark.parametrize("text", ["message.puls", "a +", ":x + 1", "state.x IN (:a)", "f(1)", ""])
def test_what_is_no_expression_of_the_language_is_refused(text):
    with pytest.raises(PredicateError):
        Expression(text, language=SUBLIM)
