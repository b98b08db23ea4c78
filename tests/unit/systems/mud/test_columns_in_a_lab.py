"""A column that was taken out stays out: of reads, conflicts, notices and joins, and also when it is added again."""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit.errors import ParameterError, PredicateError
from mudkit.systems.mud import Conflict, freshness

FRESH = freshness(1e6)


@pytest.fixture
def ann(place):
    ann = place.client("ann")
    ann.create("t").result()
    ann.write("t", "k", {"x": 1, "salary": 99}).result()
    return ann


@pytest.fixture
def bob(place):
    return place.client("bob")


def test_a_conflict_shows_no_column_that_was_removed(ann, bob):
    ann.alter("t", remove=["salary"]).result()
    with pytest.raises(Conflict) as answer:
        bob.write("t", "k", {"x": 2}, "conditional").result()
    assert answer.value.store["data"] == {"x": 1}
    assert "99" not in str(vars(answer.value))


def seen(place, client, **more):
    """Give what somebody is shown of a record in every way there is."""
    answer = listen(client, table="t", sync_timestamp=0)
    place.lab.run(minutes=1)
    return [
        answer[0].record,
        client.read("t").result().records["k"],
        client.read("t", "key = 'k'", "uncommitted", utility=FRESH).result().records["k"],
        client.read("t", latest=True).result().records["k"],
    ]


@pytest.mark.parametrize("who", ["ann", "bob", "who held it"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_values_of_before_do_not_come_back_with_their_column(place, ann, bob, who, is_restarted):
    if who == "who held it":
        bob.read("t").result()
    ann.alter("t", remove=["salary"]).result()
    ann.alter("t", add={"salary": "number"}).result()
    if is_restarted:
        for name in place.lab.world.hosts:
            place.lab.faults.kill(name)
            place.lab.faults.restart(name)
        place.lab.run(minutes=2)
    client = ann if who == "ann" else bob
    assert seen(place, client) == [{"x": 1}] * 4
    result = client.read("t", aggregate="count(salary), max(salary)").result()
    assert result.aggregates == {"count(salary)": 0, "max(salary)": None}
    assert client.read("t", "salary = 99", latest=True).result().records == {}
    assert client.read("t", "lookup('t', key, 'salary') = 99").result().records == {}
    ann.write("t", "k", {"x": 1, "salary": 5}).result()
    assert client.read("t", latest=True).result().records == {"k": {"x": 1, "salary": 5}}


def test_a_column_of_numbers_holds_no_text_of_before(ann, bob):
    ann.create("s", schema={"c": "text"}).result()
    ann.write("s", "k", {"c": "hello"}).result()
    ann.alter("s", remove=["c"]).result()
    ann.alter("s", add={"c": "number"}).result()
    assert bob.read("s").result().records == {"k": {}}
    with pytest.raises(ParameterError):
        ann.write("s", "k", {"c": "hello"}).result()
    with pytest.raises(ParameterError, match="another type"):
        ann.alter("s", add={"c": "text"}).result()


def test_a_text_that_waits_is_refused_by_the_column_that_holds_numbers_meanwhile(place, ann, bob):
    ann.create("s", schema={"c": "text"}).result()
    bob.read("s").result()
    place.lab.faults.cut("bob")
    made = bob.write("s", "k", {"c": "hello"})
    ann.alter("s", remove=["c"]).result()
    ann.alter("s", add={"c": "number"}).result()
    place.lab.faults.mend("bob")
    with pytest.raises(ParameterError):
        made.result()
    assert ann.read("s", latest=True).result().records == {}


# -- names that a table with a schema has not

SCHEMA = {"topic": "text", "price": "number", "loc": "point", "more": "any"}


@pytest.fixture
def shop(ann):
    ann.create("shop", schema=SCHEMA).result()
    ann.create("makers", schema={"city": "text"}).result()
    ann.write("shop", "a", {"topic": "arts", "price": 4}).result()
    return ann


@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio", "continuous"])
@pytest.mark.parametrize("holds", [False, True])
def test_a_read_that_names_an_unknown_column_is_refused(shop, bob, kind, holds):
    if holds:
        bob.read("shop").result()
    utility = None if kind == "continuous" else FRESH
    with pytest.raises(PredicateError) as caught:
        bob.read("shop", "topic = 'arts' AND pirce < 5", kind, utility=utility).result()
    assert caught.value.summary == "There is no record.pirce."
    assert "'price'" in caught.value.remedy
    assert "\n" + " " * (len("  where:    ") + len("topic = 'arts' AND ")) + "^^^^^\n" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"aggregate": "count(*), avg(pirce)"}, "record.pirce"),
        ({"aggregate": "sum(price)", "predicate": "topc = 'arts'"}, "record.topc"),
        ({"predicate": "lookup('makers', topic, 'ctiy') = 'Oslo'"}, "record.ctiy"),
        ({"predicate": "topic.first = 'a'"}, "record.topic.first"),
        ({"predicate": "loc.lon > 3 OR loc.alt > 3"}, "record.loc.alt"),
    ],
)
def test_wherever_it_is_named(shop, bob, asked, answer):
    with pytest.raises(PredicateError, match=answer):
        bob.read("shop", **asked).result()


@pytest.mark.parametrize(
    "text",
    [
        "key = 'a' AND price < 5", "more.deep.inside IS NULL", "loc.lat IS NULL", "receiver.pirce IS NULL",
        "lookup('makers', topic, 'city') IS NULL", "auth.user IS NOT NULL",
    ],
)  # fmt: skip
def test_what_there_may_be_is_read(shop, bob, text):
    assert list(bob.read("shop", text).result().records) == ["a"]


def test_a_column_that_was_removed_reads_null(shop, bob):
    shop.alter("shop", remove=["price"]).result()
    assert list(bob.read("shop", "price IS NULL").result().records) == ["a"]


def test_a_column_that_was_added_since_is_asked_for(shop, bob):
    """By the table that bob knows there is none: the cloud knows better, and is asked."""
    bob.read("shop").result()
    shop.alter("shop", add={"colour": "text"}).result()
    shop.write("shop", "a", {"topic": "arts", "colour": "red"}).result()
    assert list(bob.read("shop", "colour = 'red'", "uncommitted", utility=FRESH).result().records) == ["a"]


def test_a_table_without_a_schema_may_have_any_column(ann, bob):
    assert list(bob.read("t", "whatever IS NULL").result().records) == ["k"]


@pytest.mark.parametrize(
    ("writer", "answer"),
    [
        ("record.pirce < receiver.most", "record.pirce"),
        ("lookup('makers', key, 'ctiy') = 'Oslo'", "record.ctiy"),
    ],
)
def test_a_writer_predicate_that_names_an_unknown_column_is_refused(shop, writer, answer):
    """It would show the record to nobody."""
    with pytest.raises(PredicateError, match=answer):
        shop.write("shop", "b", {"price": 1}, predicate=writer).result()
    right = writer.replace("pirce", "price").replace("ctiy", "city")
    shop.write("shop", "b", {"price": 1}, predicate=right).result()
