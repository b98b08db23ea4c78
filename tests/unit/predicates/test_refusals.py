"""Errors of the predicate language."""

from __future__ import annotations

import re

import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Aggregates, Language, Predicate, function
from mudkit.predicates.exchange import from_json, to_json
from mudkit.predicates.expressions import Expression
from mudkit.predicates.functions import remove
from mudkit.predicates.layout import Column, Layout
from mudkit.predicates.parse import MAX_LEVELS

SUBLIM = Language(("message", "state"), bound=(), schema={"message": {"pulse": "number"}})
LAYOUT = Layout(
    record={
        "price": "number",
        "loc": Column(("lat", "lon"), "point"),
        "home.city": "string",
        "home.lat": "number",
        "thing": "struct",
    }
)
STOCKS = Language(
    schema={
        "record": {
            "symbol": "string",
            "price": "number",
            "at": "point",
            "home": {"city": "string"},
            "more": "struct",
        }
    }
)
NAN = float("nan")


def stocks(text):
    return Predicate.parse(text, language=STOCKS)


def sql(text, layout=LAYOUT):
    return Predicate(text).sql(layout)


def register(name, **options):
    return function(name, **{"returns": "number", "argument_kinds": ("number",), **options})(lambda x: x)


def decode(text, constant):
    return from_json({"text": text, "constants": [constant]})


REFUSED = [
    *(
        (lambda text=text: Aggregates(text), "")
        for text in (
            "", "count()", "sum(*)", "avg(x) > 1", "x", "count(*),", "sum('a')", "sum(:x)", "median(x)", "sum(a",
            "(sum(x))", "sum(x) y", "sum(lower(x))", "sum(sender.x)", "min(lookup('t', a, 'b'))",
            "count(1 + abs(lookup('t', a, 'b')))", "sum(sum(x))", "count(*); drop", "count(x, y)",
        )
    ),
    *(
        (lambda text=text: Expression(text, language=SUBLIM), "")
        for text in ("message.puls", "a +", ":x + 1", "state.x IN (:a)", "f(1)", "")
    ),
    *((lambda text=text: Predicate(f"n = {text}"), "") for text in ("0.3.5", ".3.5", "3..5", "1e3.5", ". 3.5")),
    *((lambda text=text: Predicate(f"s = {text}"), "") for text in ("E'x'", "X'ff'", "U&'x'", "_utf8'x'")),
    *((lambda text=text: Predicate(f"s = {text}"), "leave the letter out") for text in ("N'x'", "n'x'")),
    *((lambda text=text: Predicate(f"{text}.x = 1"), "") for text in ("lower(s)", "f(a).b", ":a", "'a'", "(2)")),
    (lambda: Predicate("a IN (:x, :y)", x=[1, 2, 3], y=4), ":x cannot be used as a constant"),
    (lambda: Predicate("a = 1 AND"), "expected: a name, a value or a condition after this"),
    (lambda: stocks("symbo = 'X'"), "\n *\\^+\n(.|\n)*symbol"),
    (lambda: stocks("prise > 1"), "\n *\\^+\n(.|\n)*price"),
    (lambda: stocks("home.town = 'a'"), "\n *\\^+\n(.|\n)*one of city"),
    (lambda: stocks("at.height > 1"), "\n *\\^+\n(.|\n)*lat, lon"),
    (lambda: stocks("price.x = 1"), "\n *\\^+\n(.|\n)*without attributes"),
    (lambda: stocks("lower(price) = 'x'"), "lower takes a string"),
    (lambda: Language(schema={"record": {"a": "nonsense"}}), ""),
    (lambda: Language(schema={"nowhere": {"a": "number"}}), ""),
    *(
        (lambda text=text: sql(text), pattern)
        for text, pattern in (
            ("prise = 1", "There is no record.prise in the layout.*\n.*\n *\\^\\^\\^\\^\\^\n.*\n.*did you mean 'price'"),
            ("loc.height = 1", "no record.loc.height"),
            ("price.x = 1", "no record.price.x"),
            ("thing.x = 1", "no record.thing.x"),
            ("home.town = 'x'", "no record.home.town"),
        )
    ),
    (lambda: Layout(record={"a": "int"}), "kind that does not exist"),
    (lambda: Layout(record={"a": Column(("x", "y"), "number")}), "Two columns"),
    (lambda: sql("a = 1", {"record": "data"}), "Expected a Layout"),
    (lambda: sql("lookup('t', a, 'x') = 1", Layout(record="data")), "lookup is not available in the evaluator spark"),
    (lambda: register("lower"), "function of the language"),
    (lambda: register("a b"), "cannot be the name"),
    (lambda: register("score", returns="text"), "kinds of score"),
    (lambda: register("score", argument_kinds=("struct",)), "kinds of score"),
    (lambda: function("score", returns="number")(lambda x: x), "argument x"),
    (lambda: remove("score"), "No such function"),
    (lambda: Predicate("score(1) = 1"), "no function called score"),
    *(
        (lambda constant=constant: decode("a = :x", constant), "Expected an encoded predicate")
        for constant in (
            NAN, float("inf"), 5, 1 << 70, [], b"x", "\0", {}, {"point": [100.0, 0.0]}, {"point": None}, {"in": 5},
            {"in": [NAN]}, {"struct": {"a": NAN}}, {"struct": {"a": 1 << 70}}, {"struct": [1]},
        )
    ),
    *(
        (lambda constant=constant: decode("n IN (1, 2)", constant), "")
        for constant in (None, True, "a", {"point": [1.0, 2.0]}, {"struct": {"a": 1}})
    ),
    (lambda: to_json(Predicate("a = sender.x AND b = sender.y")), r"sender\.x, sender\.y is missing"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "pattern"), REFUSED)
def test_invalid_predicates_are_refused(call, pattern):
    with pytest.raises(PredicateError) as caught:
        call()
    assert re.search(pattern, str(caught.value))


@pytest.mark.parametrize(("before", "behind"), [("NOT " * 19, ""), ("(" * 19, ")" * 19)])
def test_each_not_and_parenthesis_and_operator_is_a_level(before, behind):
    allowed = MAX_LEVELS - 20  # one level is that of the comparison
    Predicate(f"{before}n{' + 1' * allowed} = 1{behind}")
    with pytest.raises(PredicateError, match=f"too many levels[\\s\\S]*at most {MAX_LEVELS}"):
        Predicate(f"{before}n{' + 1' * (allowed + 1)} = 1{behind}")
