"""Predicates that fail, or look into other tables: what becomes of those concerned, and of everybody else."""

from __future__ import annotations

import pytest

from mudkit.errors import AccessDenied, ParameterError, PredicateError, TableProblem
from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.mud import Conflict, Habits, freshness
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.wire import as_wire

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
        answer = [each["ended"] if isinstance(each, dict) else (each.key, each.version) for each in self.told]
        self.told.clear()
        return answer


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
    answer = []

    def listen(transfer):
        if (
            as_wire(transfer.message)["kind"] == "stream"
            and as_wire(transfer.message)["body"]["what"] == "tell"
        ):
            answer.append(transfer)
        return (0,)

    place.lab.world.fault_hook = listen
    for key in "abyz":
        ann.write("news", key, {"n": 5}).result()
    assert (fails.heard(), answer) == ([], [])


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
    result = bob.read("news", "touchy(n)", utility=freshness(600)).result()
    assert result.source == {"a": "remote"}


def test_what_fails_on_what_is_held_and_does_not_come_again_is_held_no_longer(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news").result()
    ann.delete("news", "a").result()
    place.lab.run(seconds=2)
    assert len(bob.read("news", "touchy(n)").result()) == 0
    assert bob.holdings("news").result() == []


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


# -- what looks into other tables


@pytest.fixture
def members(ann):
    """People and their cities; only cem's is for nobody but himself."""
    ann.create("members", split=["b"]).result()
    ann.write("members", "ann", {"city": "Austin"}).result()
    ann.write("members", "bob", {"city": "Berlin"}).result()
    ann.write("members", "cem", {"city": "Austin"}, predicate="auth.user = 'cem'").result()
    return ann


@pytest.fixture
def stories(members):
    for key, by in (("a", "ann"), ("b", "bob"), ("c", "cem"), ("x", "nobody"), ("z", "ann")):
        members.write("news", key, {"by": by}).result()
    return members


def keys(client, text=None, *, latest=True, **more):
    return list(client.read("news", text, latest=latest, **more).result().records)


AUSTIN = "lookup('members', by, 'city') = 'Austin'"


def test_a_read_joins_what_its_reader_is_shown(place, stories, bob):
    assert keys(bob, AUSTIN) == ["a", "z"]
    assert keys(place.client("cem"), AUSTIN) == ["a", "c", "z"]
    assert keys(bob, "lookup('members', by, 'city') IS NULL") == ["c", "x"]
    mine = Predicate("lookup('members', :me, 'city') = 'Berlin' AND key > 'w'", me="bob")
    assert keys(bob, mine) == ["x", "z"]
    result = bob.read("news", AUSTIN, aggregate="count(*)").result()
    assert result.aggregates == {"count(*)": 2}


def test_a_read_that_joins_is_never_answered_from_here(place, stories, bob):
    for _ in range(2):
        assert keys(bob, AUSTIN, utility=freshness(600), latest=False) == ["a", "z"]
    stories.delete("members", "ann").result()
    assert keys(bob, AUSTIN, utility=freshness(600), latest=False) == []
    assert keys(bob, AUSTIN + " AND key = 'a'", utility=freshness(600), latest=False) == []


def test_what_a_reader_has_seen_of_a_table_is_what_it_is_joined_with(stories, bob):
    for city, result in (("Berlin", []), ("Austin", ["a", "z"])) * 3:
        stories.write("members", "ann", {"city": city}).result()  # no replica has it yet
        assert keys(bob, AUSTIN, latest=False) == result


@pytest.mark.parametrize("kind", ["committed", "continuous"])
def test_who_may_not_read_a_table_may_not_join_it(place, stories, bob, kind):
    stories.create("secrets", apps=["bank"]).result()
    stories.create("people", acl="user").result()
    app = place.client("app", token=place.lab.token(app="news"))
    for client, table in ((bob, "secrets"), (app, "people")):
        with pytest.raises(AccessDenied, match=table):
            client.read("news", f"lookup('{table}', by, 'city') = 'Austin'", kind).result()
    assert bob.read("news", "lookup('people', by, 'city') = 'Austin'", kind).result() is not None


@pytest.mark.parametrize("kind", ["committed", "continuous"])
def test_a_table_that_is_not_there_is_named_at_once(place, ann, bob, kind):
    with pytest.raises(TableProblem, match="did you mean 'news'"):
        bob.read("news", "lookup('newz', by, 'city') = 'Austin'", kind).result()
    with pytest.raises(TableProblem, match="did you mean 'news'"):
        ann.write("news", "a", {}, predicate="lookup('newz', auth.user, 'city') = 'Austin'").result()
    assert keys(ann) == []


def test_a_table_is_named_by_a_text(bob):
    for text in ("lookup(by, 'a', 'city') = 'x'", "lookup(:table, by, 'city') = 'x'"):
        wanted = Predicate(text, table=None) if ":" in text else text
        for refused in (bob.read, lambda *given, **more: bob.write("news", "a", {}, predicate=given[1])):
            with pytest.raises(PredicateError, match="must be a text"):
                refused("news", wanted)
    assert keys(bob, Predicate("lookup(:table, by, 'city') = 'x'", table="news")) == []


def test_neither_aggregates_nor_what_is_uncommitted_look_into_tables(stories, bob):
    with pytest.raises(PredicateError, match="aggregate cannot look up other tables"):
        bob.read("news", aggregate="min(lookup('members', by, 'city'))").result()
    with pytest.raises(ParameterError, match="cannot look up records"):
        bob.read("news", AUSTIN, "uncommitted").result()
    assert list(bob.read("news", AUSTIN, "committed_wio").result().records) == ["a", "z"]


def test_a_writer_shows_a_record_to_whom_a_table_names(place, members, bob):
    members.write("news", "a", {"n": 1}, predicate="lookup('members', auth.user, 'city') = 'Berlin'").result()
    ann = place.client("another", user="ann")
    assert (keys(bob), keys(ann)) == (["a"], [])
    members.write("members", "ann", {"city": "Berlin"}).result()
    members.write("members", "bob", {"city": "Boston"}).result()
    assert (keys(bob), keys(ann)) == ([], ["a"])


def test_what_only_the_cloud_can_say_a_device_asks_for(place, members, bob):
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    dora = place.client("dora", user="bob")
    members.write("news", "a", {"n": 1}, predicate=text).result()
    members.write("news", "b", {"n": 1}).result()
    place.lab.run(seconds=2)
    fresh = {"utility": freshness(600), "latest": False}
    for _ in range(2):
        assert bob.read("news", "n = 1", **fresh).result().source == {"a": "remote", "b": "remote"}
    assert {each["key"]: each["visible"] for each in bob.holdings("news").result()} == {"a": None, "b": True}
    members.write("members", "bob", {"city": "Boston"}).result()
    place.lab.run(seconds=2)
    assert keys(bob, "n = 1", utility=freshness(600), latest=False) == ["b"]
    assert [each["key"] for each in bob.holdings("news").result()] == ["b"]
    assert keys(dora, "n = 1", type="uncommitted") == ["b"]


def test_a_pending_write_for_whom_a_table_names_is_shown_when_it_is_committed(place, members):
    dora = place.client("dora", user="bob", write_policy=Never())
    dora.write("news", "a", {"n": 1}, predicate="lookup('members', auth.user, 'city') = 'Berlin'")
    assert keys(dora, type="uncommitted", latest=False) == []
    assert keys(dora, type="committed_wio", latest=False) == ["a"]  # sends it first
    assert keys(dora, type="uncommitted", latest=False) == ["a"]


def test_a_conflict_shows_what_its_writer_shows_to_whom_a_table_names(members, place):
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    members.write("news", "a", {"n": 1}, predicate=text).result()
    for user, shown in (("bob", {"n": 1}), ("ann", None)):
        with pytest.raises(Conflict) as caught:
            place.client(f"{user}-too", user=user).write("news", "a", {}, "conditional").result()
        assert (caught.value.store and caught.value.store["data"]) == shown


def test_continuous_reads_join_what_is_there_when_a_record_is_written(place, members, bob):
    joins, all_ = Ear(place, bob, AUSTIN), Ear(place, bob, "TRUE")
    for key, by in (("a", "ann"), ("b", "bob"), ("c", "cem"), ("z", "ann")):
        members.write("news", key, {"by": by}).result()
    assert joins.heard() == [("a", 1), ("z", 1)]
    members.write("members", "ann", {"city": "Berlin"}).result()
    assert joins.heard() == []
    members.write("news", "a", {"by": "ann"}).result()
    assert joins.heard() == [("a", 2)]  # that it is gone
    assert [each[0] for each in all_.heard()] == ["a", "b", "c", "z", "a"]


def test_continuous_reads_are_told_what_a_writer_shows_to_whom_a_table_names(place, members, bob):
    ears = [Ear(place, client, text) for client in (bob, members) for text in ("n = 1", AUSTIN)]
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    members.write("news", "a", {"n": 1, "by": "ann"}, predicate=text).result()
    assert [each.heard() for each in ears] == [[("a", 1)], [("a", 1)], [], []]


def test_a_continuous_read_ends_when_a_table_that_it_joins_is_closed_to_it(place, members, bob):
    closed, dropped = Ear(place, bob, AUSTIN), Ear(place, bob, AUSTIN + " OR TRUE")
    members.drop("members").result()
    members.write("news", "a", {"by": "ann"}).result()
    assert closed.heard() == dropped.heard() == ["There is no such table."]
    members.create("members", apps=["news"]).result()
    again = Ear(place, bob, AUSTIN)
    members.drop("members").result()
    members.create("members", apps=["bank"]).result()
    members.write("news", "z", {"by": "ann"}).result()
    assert again.heard() == ["This table is not open to this app."]


def test_a_join_holds_when_processors_begin_again(place, members, bob):
    ear = Ear(place, bob, AUSTIN)
    members.write("news", "a", {"by": "ann"}).result()
    assert ear.heard() == [("a", 1)]
    for address in place.cloud.processors:
        place.lab.faults.restart(address.split("/")[0])
    place.lab.run(minutes=5)
    members.write("news", "z", {"by": "ann"}).result()
    members.write("news", "b", {"by": "bob"}).result()
    assert ear.heard() == [("z", 1)]


def test_a_table_that_has_just_been_created_can_be_joined(place, ann, bob):
    """Though a processor has not heard of it."""
    place.lab.world.fault_hook = lambda transfer: () if as_wire(transfer.message)["kind"] == "log" else (0,)
    ann.create("late").result()
    waits = bob.read("news", "lookup('late', key, 'n') IS NULL", "continuous")
    place.lab.run(seconds=2)
    assert not waits.done()
    place.lab.world.fault_hook = lambda transfer: (0,)
    assert waits.result() == 1


def test_a_join_goes_one_table_deep(members, bob):
    members.create("further").result()
    members.write("further", "k", {"city": "Austin"}).result()
    deep = "lookup('further', 'k', 'city') = 'Austin'"
    members.write("members", "ann", {"city": "Austin"}, predicate=deep).result()
    assert list(bob.read("members", "key = 'ann'", latest=True).result().records) == ["ann"]
    members.write("news", "a", {"by": "ann"}).result()
    assert keys(bob, AUSTIN) == []


def test_what_joins_is_not_fetched_before_it_is_asked_for(place, stories):
    class Seen(Habits):
        def select(self, expected, context):
            seen[:] = [each.query.predicate.text for each in expected]
            return ()

    seen = []
    dora = place.client("dora", prefetch_policy=Seen())
    for text in (AUSTIN, "key > 'a'") * 2:
        dora.read("news", text).result()
    place.lab.run(minutes=10)
    assert seen == ["key > 'a'"]
