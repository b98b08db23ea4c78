"""Failing predicates and lookups in other tables: effects on their readers, and on no others."""

from __future__ import annotations

import pytest

from mudkit.errors import AccessDenied, ParameterError, PredicateError, TableProblem
from mudkit.predicates import Predicate, function
from mudkit.predicates.functions import remove
from mudkit.systems.mud import Conflict, Habits, freshness
from mudkit.systems.mud.policies.policies import NEVER
from mudkit.wire import as_wire

REASON = "The function touchy failed: ValueError: too small"


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


class Listener:
    """Continuous read that collects its changes."""

    def __init__(self, place, client, text, **more):
        self.changes = []
        self.lab = place.lab
        self.handle = client.read("news", text, "continuous", callback=self.changes.append, **more).result()

    def receive(self):
        self.lab.run(minutes=1)
        received = [
            change["ended"] if isinstance(change, dict) else (change.key, change.version)
            for change in self.changes
        ]
        self.changes.clear()
        return received


# -- failing predicates


def test_failing_predicate_ends_only_its_continuous_read(place, ann, bob):
    failing, working = Listener(place, bob, "touchy(n)"), Listener(place, bob, "n < 1")
    another = Listener(place, place.client("cem"), "touchy(n + 9)")
    assert ann.write("news", "a", {"n": -1}).result() == 1
    assert ann.write("news", "z", {"n": -2}).result() == 1
    assert (failing.receive(), working.receive()) == ([REASON], [("a", 1), ("z", 1)])
    assert another.receive() == [("a", 1), ("z", 1)]
    assert ann.write("news", "a", {"n": 5}).result() == 2
    assert (failing.receive(), another.receive()) == ([], [("a", 2)])
    assert bob.unregister(working.handle).result() is None


def test_failed_continuous_read_ends_on_all_processors(place, ann, bob):
    failing = Listener(place, bob, "touchy(n)")
    ann.write("news", "a", {"n": -1}).result()
    assert failing.receive() == [REASON]
    notifications = []

    def record(transfer):
        if (
            as_wire(transfer.message)["kind"] == "stream"
            and as_wire(transfer.message)["body"]["what"] == "tell"
        ):
            notifications.append(transfer)
        return (0,)

    place.lab.world.fault_hook = record
    for key in "abyz":
        ann.write("news", key, {"n": 5}).result()
    assert (failing.receive(), notifications) == ([], [])


@pytest.mark.parametrize("is_cut", [False, True])
def test_failed_continuous_read_stays_ended_after_processor_restarts(place, ann, bob, is_cut):
    failing, working = Listener(place, bob, "touchy(n)"), Listener(place, bob, "n < 1")
    if is_cut:
        place.lab.faults.cut("bob", minutes=5)
    ann.write("news", "a", {"n": -1}).result()
    for address in place.cloud.processors:
        place.lab.faults.restart(address.split("/")[0])
    place.lab.run(minutes=10)
    ann.write("news", "b", {"n": 0}).result()
    assert failing.receive() == [REASON]
    assert working.receive() == [("a", 1), ("b", 1)]


def test_continuous_read_failing_on_existing_records_is_refused(place, ann, bob):
    ann.write("news", "z", {"n": -1}).result()
    refused = bob.read("news", "touchy(n)", "continuous")
    place.lab.run(minutes=1)
    with pytest.raises(PredicateError, match=REASON):
        refused.result()
    ann.write("news", "z", {"n": 5}).result()
    listener = Listener(place, bob, "touchy(n)")
    ann.write("news", "a", {"n": 1}).result()
    assert listener.receive() == [("a", 1)]


def test_failing_reader_data_end_only_their_continuous_read(place, ann, bob):
    failing, working = (Listener(place, bob, "touchy(receiver.n)", data={"n": 1}) for _ in range(2))
    ann.write("news", "a", {}).result()
    assert failing.receive() == working.receive() == [("a", 1)]
    bob.update_data(failing.handle, {"n": -1}).result()
    ann.write("news", "a", {}).result()
    assert (failing.receive(), working.receive()) == ([REASON], [("a", 2)])


def test_failing_writer_predicate_hides_the_record_from_that_reader(place, ann, bob):
    low, high = (Listener(place, bob, "TRUE", data={"n": n}) for n in (-1, 1))
    assert ann.write("news", "a", {}, predicate="touchy(receiver.n)").result() == 1
    assert (low.receive(), high.receive()) == ([], [("a", 1)])
    for n, seen in ((-1, 0), (1, 1)):
        assert len(bob.read("news", data={"n": n}, latest=True).result()) == seen


def test_removed_function_in_a_writer_predicate_hides_the_record(place, ann, bob, touchy):
    failing, working = Listener(place, bob, "touchy(n)"), Listener(place, bob, "TRUE")
    ann.write("news", "a", {"n": 1}, predicate="touchy(n)").result()
    assert failing.receive() == working.receive() == [("a", 1)]
    remove("touchy")
    try:
        ann.write("news", "b", {"n": 1}).result()
        assert list(bob.read("news", latest=True).result().records) == ["b"]
        assert working.receive() == [("b", 1)]
    finally:
        function("touchy", returns="boolean")(touchy)


# -- predicates that fail on the device


def test_predicate_failing_on_a_stored_record_is_sent_to_the_cloud(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news").result()
    with pytest.raises(PredicateError, match=REASON):
        bob.read("news", "touchy(n)", utility=freshness(600)).result()
    ann.write("news", "a", {"n": 1}).result()
    place.lab.run(seconds=2)  # it is replicated by then
    result = bob.read("news", "touchy(n)", utility=freshness(600)).result()
    assert result.source == {"a": "remote"}


def test_stored_record_that_fails_and_is_not_in_the_answer_is_evicted(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news").result()
    ann.delete("news", "a").result()
    place.lab.run(seconds=2)
    assert len(bob.read("news", "touchy(n)").result()) == 0
    assert bob.holdings("news").result() == []


def test_failing_committed_wio_read_blocks_nothing(place, ann, bob):
    ann.write("news", "a", {"n": -1}).result()
    bob.read("news", "n < 0").result()
    for utility in (None, freshness(600)):
        with pytest.raises(PredicateError, match=REASON):
            bob.read("news", "touchy(n)", "committed_wio", utility=utility).result()
    assert bob.write("news", "a", {"n": 2}).result() == 2
    place.lab.run(seconds=2)
    assert len(bob.read("news", "touchy(n)", "committed_wio").result()) == 1


class Never:
    def delay(self, write, context):
        return NEVER


def test_read_failing_on_a_pending_write_fails_alone(place, ann):
    dora = place.client("dora", write_policy=Never())
    failing, working = (dora.read("news", text, "uncommitted") for text in ("touchy(n)", "n < 0"))
    dora.write("news", "a", {"n": -1})
    place.lab.run(minutes=1)
    with pytest.raises(PredicateError, match=REASON):
        failing.result()
    assert working.result().records == {"a": {"n": -1}}
    with pytest.raises(PredicateError, match=REASON):
        dora.read("news", "touchy(n)", "uncommitted").result()


def test_prefetching_tolerates_a_failing_predicate(place, ann):
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


# -- lookups in other tables


@pytest.fixture
def members(ann):
    """Create a table of people and their cities, in which only cem may see his own record."""
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


def read_keys(client, text=None, *, latest=True, **more):
    return list(client.read("news", text, latest=latest, **more).result().records)


AUSTIN = "lookup('members', by, 'city') = 'Austin'"


def test_read_joins_only_visible_records(place, stories, bob):
    assert read_keys(bob, AUSTIN) == ["a", "z"]
    assert read_keys(place.client("cem"), AUSTIN) == ["a", "c", "z"]
    assert read_keys(bob, "lookup('members', by, 'city') IS NULL") == ["c", "x"]
    mine = Predicate("lookup('members', :me, 'city') = 'Berlin' AND key > 'w'", me="bob")
    assert read_keys(bob, mine) == ["x", "z"]
    result = bob.read("news", AUSTIN, aggregate="count(*)").result()
    assert result.aggregates == {"count(*)": 2}


def test_joining_read_is_never_answered_locally(place, stories, bob):
    for _ in range(2):
        assert read_keys(bob, AUSTIN, utility=freshness(600), latest=False) == ["a", "z"]
    stories.delete("members", "ann").result()
    assert read_keys(bob, AUSTIN, utility=freshness(600), latest=False) == []
    assert read_keys(bob, AUSTIN + " AND key = 'a'", utility=freshness(600), latest=False) == []


def test_join_uses_writes_committed_before_the_read(stories, bob):
    for city, result in (("Berlin", []), ("Austin", ["a", "z"])) * 3:
        stories.write("members", "ann", {"city": city}).result()  # not replicated yet
        assert read_keys(bob, AUSTIN, latest=False) == result


@pytest.mark.parametrize("kind", ["committed", "continuous"])
def test_join_of_a_table_without_access_is_refused(place, stories, bob, kind):
    stories.create("secrets", apps=["bank"]).result()
    stories.create("people", acl="user").result()
    app = place.client("app", token=place.lab.token(app="news"))
    for client, table in ((bob, "secrets"), (app, "people")):
        with pytest.raises(AccessDenied, match=table):
            client.read("news", f"lookup('{table}', by, 'city') = 'Austin'", kind).result()
    assert bob.read("news", "lookup('people', by, 'city') = 'Austin'", kind).result() is not None


@pytest.mark.parametrize("kind", ["committed", "continuous"])
def test_join_of_an_unknown_table_is_refused(place, ann, bob, kind):
    with pytest.raises(TableProblem, match="did you mean 'news'"):
        bob.read("news", "lookup('newz', by, 'city') = 'Austin'", kind).result()
    with pytest.raises(TableProblem, match="did you mean 'news'"):
        ann.write("news", "a", {}, predicate="lookup('newz', auth.user, 'city') = 'Austin'").result()
    assert read_keys(ann) == []


def test_table_of_a_lookup_must_be_a_string(bob):
    for text in ("lookup(by, 'a', 'city') = 'x'", "lookup(:table, by, 'city') = 'x'"):
        predicate = Predicate(text, table=None) if ":" in text else text
        for call in (bob.read, lambda *arguments, **more: bob.write("news", "a", {}, predicate=arguments[1])):
            with pytest.raises(PredicateError, match="must be a text"):
                call("news", predicate)
    assert read_keys(bob, Predicate("lookup(:table, by, 'city') = 'x'", table="news")) == []


def test_aggregates_and_uncommitted_reads_cannot_join(stories, bob):
    with pytest.raises(PredicateError, match="aggregate cannot look up other tables"):
        bob.read("news", aggregate="min(lookup('members', by, 'city'))").result()
    with pytest.raises(ParameterError, match="cannot look up records"):
        bob.read("news", AUSTIN, "uncommitted").result()
    assert list(bob.read("news", AUSTIN, "committed_wio").result().records) == ["a", "z"]


def test_writer_predicate_with_lookup_selects_readers(place, members, bob):
    members.write("news", "a", {"n": 1}, predicate="lookup('members', auth.user, 'city') = 'Berlin'").result()
    ann = place.client("another", user="ann")
    assert (read_keys(bob), read_keys(ann)) == (["a"], [])
    members.write("members", "ann", {"city": "Berlin"}).result()
    members.write("members", "bob", {"city": "Boston"}).result()
    assert (read_keys(bob), read_keys(ann)) == ([], ["a"])


def test_writer_predicate_with_lookup_is_evaluated_by_the_cloud(place, members, bob):
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    dora = place.client("dora", user="bob")
    members.write("news", "a", {"n": 1}, predicate=text).result()
    members.write("news", "b", {"n": 1}).result()
    place.lab.run(seconds=2)
    fresh = {"utility": freshness(600), "latest": False}
    for _ in range(2):
        assert bob.read("news", "n = 1", **fresh).result().source == {"a": "remote", "b": "remote"}
    assert {row["key"]: row["visible"] for row in bob.holdings("news").result()} == {"a": None, "b": True}
    members.write("members", "bob", {"city": "Boston"}).result()
    place.lab.run(seconds=2)
    assert read_keys(bob, "n = 1", utility=freshness(600), latest=False) == ["b"]
    assert [row["key"] for row in bob.holdings("news").result()] == ["b"]
    assert read_keys(dora, "n = 1", type="uncommitted") == ["b"]


def test_pending_write_with_lookup_is_hidden_until_committed(place, members):
    dora = place.client("dora", user="bob", write_policy=Never())
    dora.write("news", "a", {"n": 1}, predicate="lookup('members', auth.user, 'city') = 'Berlin'")
    assert read_keys(dora, type="uncommitted", latest=False) == []
    assert read_keys(dora, type="committed_wio", latest=False) == ["a"]  # sends it first
    assert read_keys(dora, type="uncommitted", latest=False) == ["a"]


def test_conflict_respects_writer_predicate_with_lookup(members, place):
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    members.write("news", "a", {"n": 1}, predicate=text).result()
    for user, shown in (("bob", {"n": 1}), ("ann", None)):
        with pytest.raises(Conflict) as caught:
            place.client(f"{user}-too", user=user).write("news", "a", {}, "conditional").result()
        assert (caught.value.store and caught.value.store["data"]) == shown


def test_continuous_read_joins_state_at_the_time_of_the_write(place, members, bob):
    joining, all_ = Listener(place, bob, AUSTIN), Listener(place, bob, "TRUE")
    for key, by in (("a", "ann"), ("b", "bob"), ("c", "cem"), ("z", "ann")):
        members.write("news", key, {"by": by}).result()
    assert joining.receive() == [("a", 1), ("z", 1)]
    members.write("members", "ann", {"city": "Berlin"}).result()
    assert joining.receive() == []
    members.write("news", "a", {"by": "ann"}).result()
    assert joining.receive() == [("a", 2)]  # the removal
    assert [change[0] for change in all_.receive()] == ["a", "b", "c", "z", "a"]


def test_continuous_read_respects_writer_predicate_with_lookup(place, members, bob):
    listeners = [Listener(place, client, text) for client in (bob, members) for text in ("n = 1", AUSTIN)]
    text = "lookup('members', auth.user, 'city') = 'Berlin'"
    members.write("news", "a", {"n": 1, "by": "ann"}, predicate=text).result()
    assert [listener.receive() for listener in listeners] == [[("a", 1)], [("a", 1)], [], []]


def test_continuous_read_ends_when_a_joined_table_is_unavailable(place, members, bob):
    first, second = Listener(place, bob, AUSTIN), Listener(place, bob, AUSTIN + " OR TRUE")
    members.drop("members").result()
    members.write("news", "a", {"by": "ann"}).result()
    assert first.receive() == second.receive() == ["There is no such table."]
    members.create("members", apps=["news"]).result()
    third = Listener(place, bob, AUSTIN)
    members.drop("members").result()
    members.create("members", apps=["bank"]).result()
    members.write("news", "z", {"by": "ann"}).result()
    assert third.receive() == ["This table is not open to this app."]


def test_join_survives_processor_restarts(place, members, bob):
    listener = Listener(place, bob, AUSTIN)
    members.write("news", "a", {"by": "ann"}).result()
    assert listener.receive() == [("a", 1)]
    for address in place.cloud.processors:
        place.lab.faults.restart(address.split("/")[0])
    place.lab.run(minutes=5)
    members.write("news", "z", {"by": "ann"}).result()
    members.write("news", "b", {"by": "bob"}).result()
    assert listener.receive() == [("z", 1)]


def test_newly_created_table_can_be_joined(place, ann, bob):
    """Lose the log entries that announce the table to the processors."""
    place.lab.world.fault_hook = lambda transfer: () if as_wire(transfer.message)["kind"] == "log" else (0,)
    ann.create("late").result()
    registration = bob.read("news", "lookup('late', key, 'n') IS NULL", "continuous")
    place.lab.run(seconds=2)
    assert not registration.done()
    place.lab.world.fault_hook = lambda transfer: (0,)
    assert registration.result() == 1


def test_join_omits_records_whose_writer_predicate_has_a_lookup(members, bob):
    members.create("further").result()
    members.write("further", "k", {"city": "Austin"}).result()
    deep = "lookup('further', 'k', 'city') = 'Austin'"
    members.write("members", "ann", {"city": "Austin"}, predicate=deep).result()
    assert list(bob.read("members", "key = 'ann'", latest=True).result().records) == ["ann"]
    members.write("news", "a", {"by": "ann"}).result()
    assert read_keys(bob, AUSTIN) == []


def test_joining_reads_are_not_prefetched(place, stories):
    class Recorder(Habits):
        def select(self, expected, context):
            predicates[:] = [entry.query.predicate.text for entry in expected]
            return ()

    predicates = []
    dora = place.client("dora", prefetch_policy=Recorder())
    for text in (AUSTIN, "key > 'a'") * 2:
        dora.read("news", text).result()
    place.lab.run(minutes=10)
    assert predicates == ["key > 'a'"]
