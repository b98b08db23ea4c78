"""A column that was taken out stays out: of reads, conflicts, notices and joins, and also when it is added again."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import ParameterError
from mudkit.systems.mud import Conflict, freshness

FRESH = freshness(1e6)


@pytest.fixture
def place():
    return Place()


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
    with pytest.raises(Conflict) as told:
        bob.write("t", "k", {"x": 2}, "conditional").result()
    assert told.value.store["data"] == {"x": 1}
    assert "99" not in str(vars(told.value))


def seen(place, client, **more):
    """Give what somebody is shown of a record in every way there is."""
    told = []
    client.read("t", type="continuous", sync_timestamp=0, callback=told.append).result()
    place.lab.run(minutes=1)
    return [
        told[0].record,
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
    assert client.read("t", aggregate="count(salary), max(salary)").result().aggregates == {
        "count(salary)": 0, "max(salary)": None
    }  # fmt: skip
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
