"""Reads of a client: what is answered here, what is asked for, and what is then held."""

from __future__ import annotations

import pandas as pd
import pytest
from mud_place import Place

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import AlwaysRemote, Client, Cloud, Habits, bandwidth, energy, freshness
from mudkit.systems.mud.policies.policies import NEVER, Expected, Query

FRESH = freshness(600)


class Remote:
    def decide(self, asked, context, cached):
        return "remote"


class Never:
    def delay(self, write, context):
        return NEVER


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def cloud(lab):
    return Cloud(lab, replicas=0)


def client(lab, cloud, name, **more):
    return Client(lab.device(name), cloud, app="news", token=lab.token(name, "news"), **more)


@pytest.fixture
def jane(lab, cloud):
    jane = client(lab, cloud, "jane")
    jane.create("news", split=["g", "p"]).result()
    return jane


@pytest.fixture
def bob(lab, cloud, jane):
    return client(lab, cloud, "bob")


def is_answered(lab, made):
    """Say whether it is answered without the cloud."""
    lab.run(seconds=1)
    return made.done()


def seen(lab, made):
    """Give what the history says of a read: versions by key."""
    rows = lab.history()
    rows = rows[(rows["op_id"] == made.op_id) & (rows["client"] == made.process.host.name)]
    rows = rows[rows["key"].notna()]
    versions = [None if pd.isna(version) else int(version) for version in rows["version"]]
    return dict(zip(rows["key"], versions, strict=True))


def test_an_unknown_type_of_read_is_refused_with_the_nearest_one(jane):
    with pytest.raises(ParameterError, match="did you mean 'committed'") as caught:
        jane.read("news", type="comitted").result()
    assert (caught.value.where, caught.value.found) == ("type", "'comitted'")


def test_reads_in_order_are_answered_in_order(lab, jane):
    jane.write("news", "a", {"n": 1}).result()
    lab.faults.cut("jane")
    first = jane.read("news", "key = 'a'", "committed_wio")
    second = jane.read("news", "key = 'a'", "committed_wio", utility=FRESH)
    assert not is_answered(lab, second)
    lab.faults.mend("jane")
    assert first.result().source == {"a": "remote"}
    assert second.result().source == {"a": "local"}


def test_reads_in_order_of_another_table_wait_for_nothing(lab, jane):
    jane.create("other").result()
    jane.write("news", "a", {"n": 1}).result()
    lab.faults.cut("jane")
    assert not is_answered(lab, jane.read("other", "key = 'a'", "committed_wio"))
    assert is_answered(lab, jane.read("news", "key = 'a'", "committed_wio", utility=FRESH))


def test_the_latest_is_never_taken_from_here_unless_it_is_pending(lab, jane, bob):
    assert len(jane.read("news").result()) == 0
    bob.write("news", "a", {"n": 1}).result()
    assert len(jane.read("news", utility=FRESH).result()) == 0  # nothing, as it was
    assert jane.read("news", utility=FRESH, latest=True).result().versions == {"a": 1}
    bob.write("news", "a", {"n": 2}).result()
    result = jane.read("news", "key = 'a'", "uncommitted", utility=FRESH, latest=True).result()
    assert result.versions == {"a": 2}
    lab.faults.cut("jane")
    assert not is_answered(lab, jane.read("news", "key = 'a'", "uncommitted", utility=FRESH, latest=True))
    jane.write("news", "a", {"n": 3})
    assert is_answered(lab, jane.read("news", "key = 'a'", "uncommitted", utility=FRESH, latest=True))


def test_before_the_cloud_has_seen_the_token_only_what_is_pending_is_read(lab, jane):
    jane.write("news", "a", {"n": 1}).result()
    lab.faults.kill("jane")
    lab.faults.cut("jane")
    lab.faults.restart("jane")
    lab.run(seconds=1)
    jane.write("news", "b", {"n": 2})
    assert is_answered(lab, jane.read("news", "key = 'b'", "uncommitted"))
    assert not is_answered(lab, jane.read("news", "key = 'a'", "committed", utility=FRESH))


def test_what_is_held_and_does_not_match_is_not_returned(jane):
    for key, n in (("a", 1), ("h", 2)):
        jane.write("news", key, {"n": n}).result()
    assert len(jane.read("news").result()) == 2
    result = jane.read("news", "n = 1", utility=FRESH).result()
    assert result.records == {"a": {"n": 1}}
    assert result.source == {"a": "local"}


def test_that_a_named_record_is_gone_is_seen_by_who_may_see_it(lab, jane):
    jane.write("news", "a", {"n": 1}, predicate="receiver.age >= 21").result()
    jane.write("news", "h", {"n": 1}).result()
    jane.delete("news", "a").result()
    adult, child = {"age": 30}, {"age": 3}
    jane.read("news", data=adult).result()
    jane.read("news", "key = 'a'", data=adult).result()
    named = jane.read("news", "key = 'a'", data=adult, utility=FRESH)
    assert named.result().source == {}
    assert seen(lab, named) == {"a": 2}
    hidden = jane.read("news", "key = 'a'", data=child, utility=FRESH)
    hidden.result()
    assert seen(lab, hidden) == {}
    all_ = jane.read("news", data=adult, utility=FRESH)
    assert all_.result().source == {"h": "local"}
    assert seen(lab, all_) == {"h": 1}


def test_what_the_cloud_does_not_show_any_more_is_let_go(lab, jane, bob):
    bob.write("news", "a", {"n": 1}).result()
    assert len(jane.read("news", "n = 1").result()) == 1
    bob.write("news", "a", {"n": 1}, predicate="receiver.age >= 21").result()
    assert len(jane.read("news", "n = 1").result()) == 0
    assert len(jane.read("news", "key = 'a'", utility=FRESH).result()) == 0


def test_what_another_query_does_not_concern_stays(lab, jane):
    for key in ("a", "h"):
        jane.write("news", key, {"n": 1}).result()
    jane.read("news", "n = 1").result()
    jane.read("news", "n = 2").result()
    jane.read("news", "key = 'h'").result()
    lab.faults.cut("jane")
    for text in ("key = 'a'", "n = 1", "n = 2", "key = 'h'"):
        assert is_answered(lab, jane.read("news", text, utility=FRESH)), text


def test_over_what_the_cloud_answers_stands_what_is_pending(lab, cloud, jane):
    for key in ("a", "h", "q"):
        jane.write("news", key, {"n": 1}).result()
    ann = client(lab, cloud, "ann", write_policy=Never())
    ann.read("news").result()
    ann.write("news", "a", {"n": 2})
    ann.delete("news", "h")
    result = ann.read("news", "n = 2", "uncommitted").result()
    assert (result.records, result.versions, result.source) == ({"a": {"n": 2}}, {"a": None}, {"a": "local"})
    all_ = ann.read("news", None, "uncommitted")
    assert set(all_.result().records) == {"a", "q"}
    assert seen(lab, all_) == {"a": None, "q": 1}
    assert len(ann.read("news", "key = 'a' AND n = 1", "uncommitted").result()) == 0
    named = ann.read("news", "key IN ('h', 'q')", "uncommitted")
    assert set(named.result().records) == {"q"}
    assert seen(lab, named) == {"h": None, "q": 1}


def test_what_a_policy_says_counts_also_of_one_record_that_is_held_and_fresh(lab, cloud, jane):
    jane.write("news", "a", {"n": 1}).result()
    ann = client(lab, cloud, "ann", read_policy=Remote())
    for each in (jane, ann):
        each.read("news", "key = 'a'").result()
    assert jane.read("news", "key = 'a'", utility=FRESH).result().source == {"a": "local"}
    assert ann.read("news", "key = 'a'", utility=FRESH).result().source == {"a": "remote"}
    assert jane.read("news", "key = 'a'").result().source == {"a": "remote"}  # nothing held is fresh


@pytest.mark.parametrize("data", [{"age": 30}, {"age": 3}])
def test_a_record_that_is_read_by_its_key_is_what_it_is_among_others(lab, jane, data):
    jane.write("news", "a", {"n": 1, "nested": [{"m": 2}]}).result()
    jane.write("news", "b", {"n": 2}, predicate="receiver.age >= 21").result()
    jane.write("news", "c", {"n": 3}).result()
    jane.delete("news", "c").result()
    jane.read("news", latest=True, data=data).result()
    lab.faults.cut("jane")
    lab.run(seconds=5)
    for key in "abc":
        alone, among = (
            jane.read("news", text, data=data, utility=FRESH)
            for text in (f"key = '{key}'", f"key = '{key}' AND TRUE")
        )
        assert alone.result() == among.result()
        assert seen(lab, alone) == seen(lab, among)
        alone.result().records.clear()
    assert set(jane.read("news", "key IN ('a', 'b')", data=data, utility=FRESH).result().records) == (
        {"a", "b"} if data["age"] == 30 else {"a"}
    )


def test_aggregates_of_one_record_that_is_held_are_the_cloud_s(jane):
    jane.write("news", "a", {"n": 5}).result()
    counted = jane.read("news", "key = 'a'", utility=FRESH, aggregate="count(*), max(n)").result()
    assert list(counted.aggregates.values()) == [1, 5]


def test_the_history_tells_the_contents_of_a_record_apart_that_is_read_again_and_again(lab, jane):
    hashes = []
    for number in (1, 2):
        jane.write("news", "a", {"n": number}).result()
        for _ in range(2):
            made = jane.read("news", "key = 'a'", utility=FRESH)
            assert made.result().source == {"a": "local"}
            rows = lab.history()
            hashes += rows[rows["op_id"] == made.op_id]["value_hash"].tolist()
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]


ASKED = Query("news", None, "committed", {}, None)


@pytest.mark.parametrize(
    ("times", "due_s", "gain_s", "is_wanted"),
    [(3, 59.9, 0.1, True), (2, 59.9, 0.1, False), (3, 60.0, 0.1, False), (3, 0.0, 0.0, False)],
)
def test_habits(times, due_s, gain_s, is_wanted):
    wanted = Habits(min_reads=3, every_s=60.0).select([Expected(ASKED, times, due_s, gain_s)], {})
    assert bool(wanted) == is_wanted


@pytest.mark.parametrize("wrong", [{"min_reads": 1}, {"every_s": 0}, {"every_s": "60"}])
def test_habits_have_bounds(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        Habits(**wrong)


def morning(reads=6, every_min=30, utility=None, outage_at=None, **client):
    """Someone reads the news every half hour; give where each answer came from, the wait, and the bill."""
    place = Place()
    ann = place.client("ann", **client)
    ann.create("news").result()
    ann.write("news", "a", {"x": 1}).result()
    came = []
    for number in range(reads):
        if number == outage_at:
            place.lab.faults.cut("ann", minutes=every_min / 2)
        read = ann.read("news", "x > 0", utility=utility or freshness(300))
        read.result()
        came.append((read.result().source["a"], (read.responded_us - read.invoked_us) / 1e6))
        place.lab.run(minutes=every_min)
    return came, place.lab.bill().query("device == 'ann'").sum(numeric_only=True)


def test_what_is_read_every_half_hour_is_there_when_it_is_read():
    without, _ = morning()
    came, _ = morning(prefetch_policy=Habits())
    assert [source for source, _ in without] == ["remote"] * 6
    assert [source for source, _ in came] == ["remote"] * 3 + ["local"] * 3
    assert all(wait_s == 0.0 for source, wait_s in came if source == "local")


def test_what_is_fetched_is_on_the_bill():
    _, without = morning(reads=3)
    _, fetched = morning(reads=3, prefetch_policy=Habits(min_reads=2))
    assert fetched["messages"] > without["messages"]
    assert fetched["radio_mj"] > without["radio_mj"]


def test_it_is_there_without_a_link_too():
    came, _ = morning(prefetch_policy=Habits(), outage_at=5)
    assert came[5] == ("local", 0.0)
    late, _ = morning(outage_at=5)
    assert late[5][0] == "remote"
    assert late[5][1] > 800


def test_each_read_that_comes_again_is_expected_once_the_latest_last():
    class Seen(Habits):
        def select(self, expected, context):
            seen[:] = [(each.query.predicate.text, each.times) for each in expected]
            return ()

    seen = []
    place = Place()
    ann = place.client("ann", prefetch_policy=Seen())
    ann.create("news").result()
    for text in ("x > 0", "x > 1", "x > 2", "x > 0", "x > 1", "x > 0"):
        ann.read("news", text).result()
    place.lab.run(minutes=10)
    assert seen == [("x > 1", 2), ("x > 0", 3)]


@pytest.mark.parametrize("dear", [energy(1.0), bandwidth(1.0)])
def test_what_costs_more_than_it_gains_is_not_fetched(dear):
    came, _ = morning(utility=freshness(300) + dear, prefetch_policy=Habits())
    assert [source for source, _ in came] == ["remote"] * 6


def test_what_is_fresh_enough_then_is_not_fetched_again():
    _, without = morning(utility=freshness(36_000))
    _, fetched = morning(utility=freshness(36_000), prefetch_policy=Habits())
    assert fetched["messages"] == without["messages"]


def test_a_policy_that_never_reads_from_here_gains_nothing_by_it():
    came, _ = morning(prefetch_policy=Habits(), read_policy=AlwaysRemote())
    assert [source for source, _ in came] == ["remote"] * 6
