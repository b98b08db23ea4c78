"""Utilities decide while a lab runs where a read is answered: by what the device has seen of its network."""

from __future__ import annotations

import pytest

from mudkit.systems.mud import bandwidth, completeness, cost_matrix, energy, freshness, latency

ASLEEP_MJ = 12_600  # of an LTE radio that has to be opened, and of its tail


def reader(place, **client):
    """Who has asked for all records once, and then let half an hour pass."""
    jane = place.client("jane", **client)
    jane.create("news").result()
    for number in range(10):
        jane.write("news", f"a{number}", {"n": number, "text": "x" * 1000}).result()
    jane.read("news").result()
    place.lab.run(minutes=30)
    return jane


def came_from(place, client, utility):
    """Say where the answer came from, by what was carried for it."""
    before = place.lab.bill()["messages"].sum()
    result = client.read("news", utility=utility).result()
    carried = place.lab.bill()["messages"].sum() - before
    assert (carried > 0) == ("remote" in set(result.source.values())), result.source
    return "remote" if carried else "local"


@pytest.mark.parametrize(
    ("utility", "expected"),
    [
        (latency(), "local"),  # nothing weighs the age
        (freshness(3600), "local"),
        (freshness(60), "remote"),
        # What half an hour has probably changed is worth asking for, unless waiting, bytes or joules cost more.
        (cost_matrix(stale_s=2, unnecessary_s=0), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + latency(), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + 100 * latency(), "local"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + bandwidth(per_kb_s=0.01), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + bandwidth(per_kb_s=1.0), "local"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + energy(per_j_s=0.01), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + energy(per_j_s=1.0), "local"),
    ],
)
def test_the_plan_that_is_worth_most_is_taken(place, utility, expected):
    assert came_from(place, reader(place), utility) == expected


def test_energy_asks_while_the_radio_is_awake(place):
    """The same utility at the same age: the radio's tail decides."""
    jane, other = reader(place), "a record elsewhere"
    utility = cost_matrix(stale_s=5, unnecessary_s=0) + energy(per_j_s=0.5)
    assert came_from(place, jane, utility) == "local"
    jane.write("news", other, {"n": 0}).result()  # this wakes it
    assert came_from(place, jane, utility) == "remote"


def test_what_is_seen_of_a_table_changes_the_plan(place):
    """Of a table that changes at each look an answer is worth less than of one that never does."""
    jane, bob = reader(place), place.client("bob")
    utility = cost_matrix(stale_s=1.0, unnecessary_s=0.2)
    for number in range(8):
        bob.write("news", "a1", {"n": 100 + number}).result()
        jane.read("news", latest=True).result()
        place.lab.run(minutes=2)
    assert came_from(place, jane, utility) == "remote"
    for _ in range(60):
        jane.read("news", latest=True).result()
        place.lab.run(minutes=2)
    assert came_from(place, jane, utility) == "local"


def test_an_incomplete_answer_is_taken_when_a_utility_says_what_it_is_worth(place):
    jane = reader(place, max_rows=6)  # four of the ten were let go
    assert came_from(place, jane, latency()) == "remote"
    place.lab.run(minutes=30)
    assert came_from(place, jane, latency() + completeness(worth_s=0.1)) == "local"
    assert came_from(place, jane, latency() + completeness(worth_s=10.0)) == "remote"


def test_without_a_link_one_waits_or_takes_what_is_held(place):
    jane = reader(place)
    place.lab.faults.cut("jane", minutes=20)
    place.lab.run(seconds=1)
    begun_us = place.lab.world.now_us
    assert came_from(place, jane, cost_matrix(stale_s=5, unnecessary_s=0) + latency()) == "local"
    assert place.lab.world.now_us == begun_us
    jane.read("news", utility=freshness(60)).result()
    assert place.lab.world.now_us - begun_us > 19 * 60e6
