from __future__ import annotations

import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from mudkit.errors import PredicateError
from mudkit.predicates import Language, Point, Predicate, SubscriptionIndex

SPORTS = "topic = 'sports' AND price BETWEEN :lo AND :hi"


def test_constants_and_bound_scopes_are_evaluated() -> None:
    p = Predicate(SPORTS, lo=5, hi=10)
    assert p({"topic": "sports", "price": 7}) is True
    w = Predicate("receiver.age >= 21 AND distance_km(receiver.loc, sender.loc) <= 1.6")
    reader = {"age": 30, "loc": (30.28, -97.74)}
    with pytest.raises(PredicateError, match=r"sender\.loc is missing"):
        w({}, receiver=reader)
    bound = w.bind(sender={"loc": (30.27, -97.74)})
    assert bound({}, receiver=reader) is True
    assert w.unbound == ["sender.loc"]
    assert bound.unbound == []
    assert w({}, receiver=reader, sender={"loc": (30.27, -97.74)}) is True
    assert p.names() == {"record": {"topic", "price"}, "receiver": set(), "auth": set(), "sender": set()}


def test_signatures_are_equal_for_equal_shapes() -> None:
    one = Predicate(SPORTS, lo=5, hi=10)
    other = Predicate("topic='arts'\n  and (price between 1 and 2.5) -- cheap")
    assert (
        one.signature
        == other.signature
        == "(record.topic = ?string) AND (record.price >= ?number) AND (record.price <= ?number)"
    )
    assert one.form is other.form
    assert one.signature != Predicate(SPORTS, lo="a", hi="b").signature
    assert Predicate("a = 1 AND b = 2").signature != Predicate("a = 1 OR b = 2").signature
    assert (
        Predicate("(a = 1 AND b = 2) OR c = 3").signature != Predicate("a = 1 AND (b = 2 OR c = 3)").signature
    )
    assert Predicate("a - (b - 1) = 0").signature != Predicate("(a - b) - 1 = 0").signature


def test_equality_pickling_and_repr() -> None:
    one, other = Predicate(SPORTS, lo=5, hi=10), Predicate("topic = 'sports' AND price BETWEEN 5 AND 10")
    assert one == other
    assert hash(one) == hash(other)
    assert one != Predicate(SPORTS, lo=5, hi=11)
    assert one != 5
    assert repr(one) == f"Predicate({SPORTS!r}, constants=['sports', 5.0, 10.0])"
    bound = Predicate("a > sender.x AND b = :p", p=(1, 2)).bind(sender={"x": 3})
    copy = pickle.loads(pickle.dumps(bound))
    assert copy == bound
    assert copy({"a": 4, "b": [1, 2]}) is True
    assert pickle.loads(pickle.dumps(Predicate("a > sender.x"))).unbound == ["sender.x"]


def test_predicates_of_one_shape_have_different_hashes():
    """Else a cache of a thousand of them compares each with all others."""
    predicates = [Predicate(f"n > {number}") for number in range(100)]
    predicates += [Predicate("n = sender.n").bind(sender={"n": number}) for number in range(100)]
    assert len({*map(hash, predicates)}) > 190
    assert hash(Predicate("n = 0.0")) == hash(Predicate("n = -0.0"))


def test_predicate_with_a_struct_of_its_writer_is_hashable():
    one, other = (Predicate("n = sender.at").bind(sender={"at": {"lat": 1.0}}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.process
def test_pickled_predicate_works_in_another_process(tmp_path: object) -> None:
    data = pickle.dumps(Predicate("a IN :l AND p = :p", l=[1, "x", None], p={"lat": 1, "lon": 2}))
    code = f"import pickle; p = pickle.loads({data!r}); print(p({{'a': 'x', 'p': (1, 2)}}))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "True\n"
    )


def test_bind_accepts_any_kind_and_paths() -> None:
    w = Predicate(
        "receiver.x = sender.x AND receiver.city = sender.home.city AND within_km(receiver.loc, sender.loc, 1)"
    )
    bound = w.bind(sender={"x": True, "home": {"city": "Austin"}, "loc": {"lat": 1, "lon": 2}})
    assert bound({}, receiver={"x": True, "city": "Austin", "loc": (1, 2)}) is True
    assert w.bind(sender={})({}, receiver={"x": True}) is None
    assert Predicate("sender.x = 1 OR sender.x IS NULL").bind(sender={"x": float("nan")})() is True


def test_explain_draws_the_tree() -> None:
    assert Predicate("a = :x AND NOT lower(s) LIKE 'b%'", x=5).explain() == (
        "AND\n├─ =\n│  ├─ record.a\n│  └─ 5.0  (number)\n└─ NOT\n   └─ LIKE  (boolean)\n      ├─ lower  (string)\n      │  └─ record.s\n      └─ 'b%'  (string)"
    )


def test_schema_checks_names_and_kinds() -> None:
    stocks = Language(
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
    p = Predicate.parse(
        "symbol = 'X' AND price > :p AND at.lat > 0 AND home.city = 'a' AND more.what = 1",
        {"p": 5},
        language=stocks,
    )
    assert p({"symbol": "X", "price": 6, "at": (1, 2), "home": {"city": "a"}, "more": {"what": 1}}) is True
    assert p({"symbol": "X", "price": "6"}) is None
    assert Predicate.parse("receiver.anything = 1", language=stocks)({}, receiver={"anything": 1}) is True
    assert pickle.loads(pickle.dumps(p)) == p or pickle.loads(pickle.dumps(p)).signature == p.signature


def test_scopes_of_another_language() -> None:
    sublim = Language(("message", "state"), bound=())
    p = Predicate.parse("pulse < 50 OR state.battery > :low", {"low": 25}, language=sublim)
    assert p({"pulse": 70}, state={"battery": 80}) is True
    assert p.names() == {"message": {"pulse"}, "state": {"battery"}}
    with pytest.raises(PredicateError, match="no such scope"):
        p({}, receiver={})


def test_numpy_accepts_lists_masks_and_series() -> None:
    frame = pd.DataFrame(
        {
            "n": [1, 2, None],
            "s": ["a", "b", None],
            "t": pd.to_datetime(["2024-01-01", None, "2024-01-02"], utc=True),
            "b": [True, False, None],
        }
    )

    def evaluate(text: str, **more: object) -> list[bool | None]:
        result = Predicate(text).numpy({**{name: frame[name] for name in frame}, **more})
        return [
            None if mask else bool(x) for x, mask in zip(result.data, np.ma.getmaskarray(result), strict=True)
        ]

    assert evaluate("n >= 2") == [False, True, None]
    assert evaluate("s = 'a'") == [True, False, None]
    assert evaluate("t > 1704067200") == [False, None, True]
    assert evaluate("b") == [True, False, None]
    assert evaluate("x = 1", x=np.ma.MaskedArray([1, 1, 2], mask=[False, True, False])) == [True, None, False]
    assert evaluate("p = point(1, 2)", p=np.array([[1, 2], [3, 4], [np.nan, 1]])) == [True, False, None]
    assert evaluate("p.lat + n > 2", **{"p.lat": np.array([1, 2, 3], dtype=np.int8)}) == [False, True, None]
    assert evaluate("p.lat = 1 AND c = 'k'", p=(1, 2), c="k") == [True, True, True]
    assert evaluate("u = 'ü'", u=np.array(["ü", "u", ""])) == [True, False, False]
    assert evaluate("big = big", big=np.array([2**53, 2**53 + 1, -(2**60)])) == [True, None, None]
    assert evaluate("p.name = 'x'", p=[{"lat": 1, "lon": 2, "name": "x"}, {"name": "y"}, None]) == [
        True,
        False,
        None,
    ]
    assert evaluate("TRUE") == [True, True, True]
    with pytest.raises(PredicateError, match="length"):
        evaluate("n = 1", x=[1, 2])


@pytest.mark.parametrize(
    "text",
    ["(n NOT IN (1, 'a')) IN (TRUE, FALSE)", "(n NOT IN (1, 'a')) IN (NULL)", "NOT (n IN (1, 'a')) = TRUE"],
)
@pytest.mark.parametrize("values", [[2.0, 1.0, 3.0], [1.0], []])
def test_negated_list_of_two_kinds_has_a_value_for_every_row(text, values) -> None:
    predicate = Predicate(text)
    columns = {"n": np.array(values)}
    assert predicate.numpy(columns).tolist() == [predicate({"n": n}) for n in values]


def test_writer_with_a_negated_list_of_two_kinds_matches_readers() -> None:
    index = SubscriptionIndex()
    for number in range(100):
        index.add(number, Predicate("topic = 'x'"), receiver={"age": number % 5})
    writer = Predicate("(receiver.age NOT IN (1, 'a')) IN (TRUE, FALSE)")
    expected = [number for number in range(100) if writer({}, receiver={"age": number % 5})]
    assert expected
    assert index.match({"topic": "x"}, writer=writer) == expected


def test_caret_marks_the_error_in_long_texts() -> None:
    text = (
        " AND ".join(f"name_{number} = 1" for number in range(60))
        + " AND nonsense(1) AND "
        + " AND ".join(["a = 1"] * 60)
    )
    with pytest.raises(PredicateError) as caught:
        Predicate(text)
    line, carets = str(caught.value).splitlines()[1:3]
    assert line[carets.index("^") : carets.rindex("^") + 1] == "nonsense"
    assert len(line) < 100


def test_points_are_accepted_as_parameters() -> None:
    for place in ((1, 2), [1, 2], {"lat": 1, "lon": 2}, Point(1, 2), np.array([1.0, 2.0])):
        assert Predicate("p = :p", p=place)({"p": (1, 2)}) is True


@pytest.mark.parametrize(
    ("text", "language", "meant"),
    [
        ("reciever.age >= 21", Language(), "receiver.age"),
        ("loc.lat > 3 AND Receiver.name = 'a'", Language(), "receiver.name"),
        ("sneder.loc.lat > 3", Language(), "sender.loc.lat"),
        ("sate.count > 3", Language(("message", "state")), "state.count"),
    ],
)
def test_misspelt_scope_is_refused_with_the_scope_that_is_meant(text, language, meant) -> None:
    with pytest.raises(PredicateError, match=f"did you mean {re.escape(meant)}\\?") as caught:
        Predicate.parse(text, language=language)
    first = caught.value.remedy.split()[-1]
    assert Predicate.parse(f"{first} IS NULL", language=language)({}) is True


def test_attributes_that_do_not_resemble_a_scope_are_those_of_a_struct() -> None:
    assert (
        Predicate("author.name = 'a' AND user.age > 3")({"author": {"name": "a"}, "user": {"age": 4}}) is True
    )
    language = Language(schema={"record": {"reciever": {"age": "number"}}})
    assert Predicate.parse("reciever.age > 3", language=language)({"reciever": {"age": 4}}) is True


@pytest.mark.parametrize("kind", ["AND", "OR"])
def test_predicate_may_have_as_many_nodes_as_its_refusal_says(kind: str) -> None:
    """A comparison has three nodes, NOT one more, and an operator stands between any two: 4 * 125 - 1 + 1."""
    comparisons = ["n = 1"] * 125
    Predicate(f" {kind} ".join(["NOT n = 1", *comparisons[1:]]))
    with pytest.raises(PredicateError, match=r"too large[\s\S]*at most 500 nodes"):
        Predicate(f" {kind} ".join(["NOT n = 1"] * 2 + comparisons[2:]))


def test_index_explains_which_names_it_has_never_seen() -> None:
    index = SubscriptionIndex()
    index.add("sub-1", Predicate("record.reciever.age >= 21 AND topic = 'news'"))
    assert index.explain({"topic": "arts"})["never_seen"].tolist() == ["record.reciever.age"]


@pytest.mark.parametrize("scope", ["receiver", "auth"])
def test_name_that_a_reader_once_had_is_seen_also_after_its_removal(scope: str) -> None:
    """See :meth:`SubscriptionIndex.explain`: never seen is a name that no data have had so far."""
    index, writer = SubscriptionIndex(), Predicate(f"{scope}.role = 'doctor'")
    index.add("sub-1", Predicate("n = 1"))
    assert index.explain({"n": 1}, writer)["never_seen"].tolist() == [f"{scope}.role"]
    index.add("sub-2", Predicate("m = 2"), **{scope: {"role": "nurse"}})
    index.remove("sub-2")
    assert index.explain({"n": 1}, writer)["never_seen"].tolist() == [""]
