"""What is fetched before it is asked for."""

from __future__ import annotations

import pytest
from mud_place import Place

from mudkit.errors import ParameterError
from mudkit.systems.mud import AlwaysRemote, Habits, bandwidth, energy, freshness
from mudkit.systems.mud.policies.policies import Asked, Expected

ASKED = Asked("news", None, "committed", {}, None)


@pytest.mark.parametrize(
    ("times", "due_s", "gain_s", "is_wanted"),
    [(3, 59.9, 0.1, True), (2, 59.9, 0.1, False), (3, 60.0, 0.1, False), (3, 0.0, 0.0, False)],
)
def test_habits(times, due_s, gain_s, is_wanted):
    wanted = Habits(min_reads=3, every_s=60.0).wanted([Expected(ASKED, times, due_s, gain_s)], {})
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
        def wanted(self, expected, context):
            seen[:] = [(each.asked.predicate.text, each.times) for each in expected]
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
