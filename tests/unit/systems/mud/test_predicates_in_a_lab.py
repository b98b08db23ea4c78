"""Predicates that fail, or look into other tables: what becomes of those concerned, and of everybody else."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import PredicateError
from mudkit.predicates import function
from mudkit.predicates.functions import remove
from mudkit.systems.mud import Habits, freshness
from mudkit.systems.mud.policies import NEVER

WHY = "The function touchy failed: ValueError: too small"


@pytest.fixture(autouse=True)
def touchy():
    @function("touchy", returns="boolean")
    def touchy(x: float) -> bool:
        if x < 0:
            raise ValueError("too small")
        return x > 0

    yield touchy
    remove("touchy")


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def ann(place):
    client = place.client("ann")
    client.create("news", acl="app", split=["m"]).result()
    return client


@pytest.fixture
def bob(place, ann):
    return place.client("bob")


class Ear:
    """Who listens to a continuous read, and what it is told."""

    def __init__(self, place, client, text, **more):
        self.told = []
        self.lab = place.lab
        self.handle = client.read("news", text, "continuous", callback=self.told.append, **more).result()

    def heard(self):
        self.lab.run(minutes=1)
        told = [each["ended"] if isinstance(each, dict) else (each.key, each.version) for each in self.told]
        self.told.clear()
        return told


# -- what fails


def test_a_continuous_read_whose_predicate_fails_ends_and_nobody_else_notices(place, ann, bob):
    fails, goes_on = Ear(place, bob, "touchy(n)"), Ear(place, bob, "n < 1")
    another = Ear(place, place.client("cem"), "touchy(n + 9)")
    assert ann.write("news", "a", {"n": -1}).result() == 1
    assert ann.write("news", "z", {"n": -2}).result() == 1
    assert (fails.heard(), goes_on.heard()) == ([WHY], [("a", 1), ("z", 1)])
    assert another.heard() == [("a", 1), ("z", 1)]
    assert ann.write("news", "a", {"n": 5}).result() == 2
    assert (fails.heard(), another.heard()) == ([], [("a", 2)])
    assert bob.unregister(goes_on.handle).result() is None


def test_one_that_has_failed_is_over_on_all_processors(place, ann, bob):
    fails = Ear(place, bob, "touchy(n)")
    ann.write("news", "a", {"n": -1}).result()
    assert fails.heard() == [WHY]
    told = []

    def listen(transfer):
        if transfer.message["kind"] == "stream" and transfer.message["body"]["what"] == "tell":
            told.append(transfer)
        return (0,)

    place.lab.world.meddle = listen
    for key in "abyz":
        ann.write("news", key, {"n": 5}).result()
    assert (fails.heard(), told) == ([], [])


@pytest.mark.parametrize("is_cut", [False, True])
def test_it_stays_ended_when_processors_begin_again(place, ann, bob, is_cut):
    fails, goes_on = Ear(place, bob, "touchy(n)"), Ear(place, bob, "n < 1")
    if is_cut:
        place.lab.faults.cut("bob", minutes=5)
    ann.write("news", "a", {"n": -1}).result()
    for address in place.cloud.processors:
        place.lab.faults.restart(address.split("/")[0])
    place.lab.run(minutes=10)
    ann.write("news", "b", {"n": 0}).result()
    assert fails.heard() == [WHY]
    assert goes_on.heard() == [("a", 1), ("b", 1)]


def test_a_continuous_read_that_fails_on_what_is_there_does_not_begin(place, ann, bob):
    ann.write("news", "z", {"n": -1}).result()
    refused = bob.read("news", "touchy(n)", "continuous")
    place.lab.run(minutes=1)
    with pytest.raises(PredicateError, match=WHY):
        refused.result()
    ann.write("news", "z", {"n": 5}).result()
    ear = Ear(place, bob, "touchy(n)")
    ann.write("news", "a", {"n": 1}).result()
    assert ear.heard() == [("a", 1)]


def test_reader_data_may_make_it_fail_and_another_reader_not(place, ann, bob):
    fails, goes_on = (Ear(place, bob, "touchy(receiver.n)", data={"n": 1}) for _ in range(2))
    ann.write("news", "a", {}).result()
    assert fails.heard() == goes_on.heard() == [("a", 1)]
    bob.update_data(fails.handle, {"n": -1}).result()
    ann.write("news", "a", {}).result()
    assert (fails.heard(), goes_on.heard()) == ([WHY], [("a", 2)])


def test_a_writer_predicate_that_fails_for_a_reader_hides_the_record_from_that_one(place, ann, bob):
    low, high = (Ear(place, bob, "TRUE", data={"n": n}) for n in (-1, 1))
    assert ann.write("news", "a", {}, predicate="touchy(receiver.n)").result() == 1
    assert (low.heard(), high.heard()) == ([], [("a", 1)])
    for n, seen in ((-1, 0), (1, 1)):
        assert len(bob.read("news", data={"n": n}, latest=True).result()) == seen


def test_a_function_that_is_gone_hides_what_its_writers_show(place, ann, bob, touchy):
    fails, goes_on = Ear(place, bob, "touchy(n)"), Ear(place, bob, "TRUE")
    ann.write("news", "a", {"n": 1}, predicate="touchy(n)").result()
    assert fails.heard() == goes_on.heard() == [("a", 1)]
    remove("touchy")
    try:
        ann.write("news", "b", {"n": 1}).result()
        assert list(bob.read("news", latest=True).result().records) == ["b"]
        assert goes_on.heard() == [("b", 1)]
    finally:
        function("touchy", returns="boolean")(touchy)


# -- what fails on the device


def test_what_fails_on_what_is_held_is_asked_of_the_cloud(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news").result()
    with pytest.raises(PredicateError, match=WHY):
        bob.read("news", "touchy(n)", utility=freshness(600)).result()
    ann.write("news", "a", {"n": 1}).result()
    place.lab.run(seconds=2)  # a replica has it then
    found = bob.read("news", "touchy(n)", utility=freshness(600)).result()
    assert found.source == {"a": "remote"}


def test_what_fails_on_what_is_held_and_does_not_come_again_is_held_no_longer(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news").result()
    ann.delete("news", "a").result()
    place.lab.run(seconds=2)
    assert len(bob.read("news", "touchy(n)").result()) == 0
    assert bob.held("news").result() == []


def test_a_read_in_order_that_fails_holds_up_nothing(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news", "n < 0").result()
    for utility in (None, freshness(600)):
        with pytest.raises(PredicateError, match=WHY):
            bob.read("news", "touchy(n)", "committed_wio", utility=utility).result()
    assert bob.write("news", "a", {"n": 2}).result() == 2
    place.lab.run(seconds=2)
    assert len(bob.read("news", "touchy(n)", "committed_wio").result()) == 1


class Never:
    def delay(self, write, context):
        return NEVER


def test_a_read_that_fails_on_what_is_pending_fails_by_itself(place, ann):
    dora = place.client("dora", write_policy=Never())
    fails, goes_on = (dora.read("news", text, "uncommitted") for text in ("touchy(n)", "n < 0"))
    dora.write("news", "a", {"n": -1})
    place.lab.run(minutes=1)
    with pytest.raises(PredicateError, match=WHY):
        fails.result()
    assert goes_on.result().records == {"a": {"n": -1}}
    with pytest.raises(PredicateError, match=WHY):
        dora.read("news", "touchy(n)", "uncommitted").result()


def test_what_fails_on_what_is_held_can_be_expected_again(place, ann):
    dora = place.client("dora", prefetch_policy=Habits())
    ann.write("news", "a", {"n": 1}).result()
    for _ in range(3):
        assert len(dora.read("news", "touchy(n)").result()) == 1
        place.lab.run(minutes=1)
    ann.write("news", "a", {"n": -1}).result()
    place.lab.run(seconds=2)
    dora.read("news", "n < 0").result()
    place.lab.run(minutes=30)
    assert len(dora.read("news", "n < 0").result()) == 1
