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
    (lambda: Predicate("distanse_km(a, b) < 1"), "did you mean distance_km"),
    *(
        (lambda text=text: Predicate(text), "This is not a (DATE|TIMESTAMP)")
        for text in (
            "t > DATE '2023-11-31'", "t > DATE 'tomorrow'", "t > DATE '2023-11-15 08:30'", "t > DATE ''", "t > TIMESTAMP '15.11.2023'",
            "t > TIMESTAMP '2023-11-15 08:30 Nowhere/City'", "t > TIMESTAMP '2023-11-15T08:30+01:00 Europe/Zurich'", "t > timestamp '2023-11-15 25:00'",
        )
    ),
    *(
        (lambda text=text, given=given: Predicate(text, **given), pattern)
        for text, given, pattern in (
            ("5 = 'x'", {}, "never TRUE.*\n *where: *5 = 'x'\n *\\^{7}"), ("hour(ts) = '22'", {}, "a number and a string"),
            ("NOT weekday(ts) <> 'Tuesday'", {}, "a number and a string"), ("TRUE < 1", {}, "a boolean and a number"),
            ("point(a, b) = 5", {}, "a point and a number"), ("length(s) IN (1, '2')", {}, "a number and a string"),
            ("length(s) IN :l", {"l": [1, None, True]}, "a number and a boolean"), ("length(s) BETWEEN 1 AND :n", {"n": "5"}, "a number and a string"),
            ("abs(n) > '2023-11-15'", {}, "to do: *a time is a number of seconds, which TIMESTAMP '2023-11-15' writes"),
            ("abs(n) IN ('2023-11-15 10:00')", {}, "which TIMESTAMP '2023-11-15 10:00' writes"),
            ("hour(ts, 'Zurich') = 1", {}, "no such time zone"), ("year(ts, :z) = 1", {"z": ""}, "no such time zone"),
            ("within_km(p, point(-122.4, 37.7), 1)", {}, "the latitude comes first: point\\(37.7, -122.4\\)"), ("point(a, 181) = p", {}, "latitude …, longitude 181"),
            ("NOT within_km(p, point(:a, :b), 1)", {"a": 90.5, "b": 200}, "no such place"),
            ("within_box(p, -122.5, 37.6, -122.3, 37.8)", {}, "no such box"), ("within_box(p, 3, 0, 2, 1)", {}, "the southern one first"),
            ("within_box(p, a, -180.5, b, 0)", {}, "no such box"), ("within_box(p, a, 0, :n, 1)", {"n": 91}, "no such box"),
            ("matches(s, :p)", {"p": "["}, "not a regular expression"),
        )
    ),
    (lambda: stocks("symbol IN (1, 2)"), "a string and a number"),
    (lambda: Expression("hour(ts, 'Zurich')"), "no such time zone"),
    (lambda: Aggregates("sum(distance_km(p, point(95, 8)))"), "no such place"),
    (lambda: stocks("price > symbol"), "a number and a string"),
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


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("n > 5", {"n": "7"}),
        ("length(s) IN (1, n)", {"n": "2", "s": "ab"}),
        ("hour(n, z) = 1", {"n": 0, "z": "Zurich"}),
        ("within_km(p, point(lat, lon), 1)", {"p": (1, 1), "lat": -122.4, "lon": 37.7}),
        ("within_box(p, south, 0, 3, 1)", {"p": (1, 1), "south": 400}),
        ("matches(s, pattern)", {"s": "a", "pattern": "["}),
    ],
)
def test_data_are_never_refused(text, data):
    """Return NULL for a record, and for a writer, whose data do not fit (design: three-valued logic)."""
    assert Predicate(text)(data) in (None, False)
    of_writer = re.sub(r"\b(n|s|z|p|lat|lon|south|pattern)\b(?!\()", r"sender.\1", text)
    assert Predicate(of_writer).bind(sender=data)({}) in (None, False)


def test_name_that_is_bound_in_two_places_is_not_two_constants():
    """Keep forms apart whose signatures are equal: one slot for ``sender.x``, two for ``:a`` and ``:b``."""
    bound = Predicate("sender.x < lat AND sender.x > lon").bind(sender={"x": 5})
    given = Predicate(":a < lat AND :b > lon", a=5, b=1)
    assert bound({"lat": 6, "lon": 2}) is True
    assert given({"lat": 6, "lon": 2}) is False
    assert [Predicate(":a = :b", a=a, b=2)({}) for a in (1, 2)] == [False, True]
    assert Predicate("sender.a = sender.a").bind(sender={"a": 1})({}) is True
    assert [Predicate("(:a) = (:b)", a=a, b=2)({}) for a in (1, 2)] == [False, True]
