"""Removed columns in reads, conflicts, and joins, also when added again; unknown columns in predicates."""

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


def test_conflict_omits_removed_columns(ann, bob):
    ann.alter("t", remove=["salary"]).result()
    with pytest.raises(Conflict) as caught:
        bob.write("t", "k", {"x": 2}, "conditional").result()
    assert caught.value.store["data"] == {"x": 1}
    assert "99" not in str(vars(caught.value))


def read_all_ways(place, client, **more):
    """Return a record as each kind of read shows it."""
    changes = listen(client, table="t", sync_timestamp=0)
    place.lab.run(minutes=1)
    return [
        changes[0].record,
        client.read("t").result().records["k"],
        client.read("t", "key = 'k'", "uncommitted", utility=FRESH).result().records["k"],
        client.read("t", latest=True).result().records["k"],
    ]


@pytest.mark.parametrize("reader", ["ann", "bob", "who held it"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_old_values_stay_removed_when_their_column_is_added_again(place, ann, bob, reader, is_restarted):
    if reader == "who held it":
        bob.read("t").result()
    ann.alter("t", remove=["salary"]).result()
    ann.alter("t", add={"salary": "number"}).result()
    if is_restarted:
        for name in place.lab.world.hosts:
            place.lab.faults.kill(name)
            place.lab.faults.restart(name)
        place.lab.run(minutes=2)
    client = ann if reader == "ann" else bob
    assert read_all_ways(place, client) == [{"x": 1}] * 4
    result = client.read("t", aggregate="count(salary), max(salary)").result()
    assert result.aggregates == {"count(salary)": 0, "max(salary)": None}
    assert client.read("t", "salary = 99", latest=True).result().records == {}
    assert client.read("t", "lookup('t', key, 'salary') = 99").result().records == {}
    ann.write("t", "k", {"x": 1, "salary": 5}).result()
    assert client.read("t", latest=True).result().records == {"k": {"x": 1, "salary": 5}}


def test_column_added_with_another_type_has_no_old_values(ann, bob):
    ann.create("s", schema={"c": "text"}).result()
    ann.write("s", "k", {"c": "hello"}).result()
    ann.alter("s", remove=["c"]).result()
    ann.alter("s", add={"c": "number"}).result()
    assert bob.read("s").result().records == {"k": {}}
    with pytest.raises(ParameterError):
        ann.write("s", "k", {"c": "hello"}).result()
    with pytest.raises(ParameterError, match="another type"):
        ann.alter("s", add={"c": "text"}).result()


def test_pending_write_of_the_old_column_type_is_refused(place, ann, bob):
    ann.create("s", schema={"c": "text"}).result()
    bob.read("s").result()
    place.lab.faults.cut("bob")
    write = bob.write("s", "k", {"c": "hello"})
    ann.alter("s", remove=["c"]).result()
    ann.alter("s", add={"c": "number"}).result()
    place.lab.faults.mend("bob")
    with pytest.raises(ParameterError):
        write.result()
    assert ann.read("s", latest=True).result().records == {}


# -- unknown columns of a table with a schema

SCHEMA = {"topic": "text", "price": "number", "loc": "point", "more": "any"}


@pytest.fixture
def shop(ann):
    ann.create("shop", schema=SCHEMA).result()
    ann.create("makers", schema={"city": "text"}).result()
    ann.write("shop", "a", {"topic": "arts", "price": 4}).result()
    return ann


@pytest.mark.parametrize("kind", ["uncommitted", "committed", "committed_wio", "continuous"])
@pytest.mark.parametrize("has_records", [False, True])
def test_read_with_unknown_column_is_refused(shop, bob, kind, has_records):
    if has_records:
        bob.read("shop").result()
    utility = None if kind == "continuous" else FRESH
    with pytest.raises(PredicateError) as caught:
        bob.read("shop", "topic = 'arts' AND pirce < 5", kind, utility=utility).result()
    assert caught.value.summary == "There is no record.pirce."
    assert "'price'" in caught.value.remedy
    assert "\n" + " " * (len("  where:    ") + len("topic = 'arts' AND ")) + "^^^^^\n" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "column"),
    [
        ({"aggregate": "count(*), avg(pirce)"}, "record.pirce"),
        ({"aggregate": "sum(price)", "predicate": "topc = 'arts'"}, "record.topc"),
        ({"predicate": "lookup('makers', topic, 'ctiy') = 'Oslo'"}, "record.ctiy"),
        ({"predicate": "topic.first = 'a'"}, "record.topic.first"),
        ({"predicate": "loc.lon > 3 OR loc.alt > 3"}, "record.loc.alt"),
    ],
)
def test_unknown_column_is_refused_in_any_expression(shop, bob, arguments, column):
    with pytest.raises(PredicateError, match=column):
        bob.read("shop", **arguments).result()


@pytest.mark.parametrize(
    "text",
    [
        "key = 'a' AND price < 5", "more.deep.inside IS NULL", "loc.lat IS NULL", "receiver.pirce IS NULL",
        "lookup('makers', topic, 'city') IS NULL", "auth.user IS NOT NULL",
    ],
)  # fmt: skip
def test_known_names_are_accepted(shop, bob, text):
    assert list(bob.read("shop", text).result().records) == ["a"]


def test_removed_column_reads_null(shop, bob):
    shop.alter("shop", remove=["price"]).result()
    assert list(bob.read("shop", "price IS NULL").result().records) == ["a"]


def test_newly_added_column_is_read_from_the_cloud(shop, bob):
    """Ask the cloud, although the stored properties of the table lack the column."""
    bob.read("shop").result()
    shop.alter("shop", add={"colour": "text"}).result()
    shop.write("shop", "a", {"topic": "arts", "colour": "red"}).result()
    assert list(bob.read("shop", "colour = 'red'", "uncommitted", utility=FRESH).result().records) == ["a"]


def test_table_without_schema_has_any_column(ann, bob):
    assert list(bob.read("t", "whatever IS NULL").result().records) == ["k"]


@pytest.mark.parametrize(
    ("predicate", "column"),
    [
        ("record.pirce < receiver.most", "record.pirce"),
        ("lookup('makers', key, 'ctiy') = 'Oslo'", "record.ctiy"),
    ],
)
def test_writer_predicate_with_unknown_column_is_refused(shop, predicate, column):
    """Refuse a predicate that would hide the record from all readers."""
    with pytest.raises(PredicateError, match=column):
        shop.write("shop", "b", {"price": 1}, predicate=predicate).result()
    corrected = predicate.replace("pirce", "price").replace("ctiy", "city")
    shop.write("shop", "b", {"price": 1}, predicate=corrected).result()
