"""Plans for reads and writes in a running lab: utilities decide by what the device has observed."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from mudkit.systems.mud import (
    ShippedPolicy,
    Utility,
    bandwidth,
    completeness,
    cost_matrix,
    energy,
    freshness,
    latency,
)
from mudkit.systems.mud.servers.processor import Processor

ASLEEP_MJ = 12_600  # wake-up of an LTE radio, with its tail


def create_reader(place, **client):
    """Create a client that has read all records half an hour ago."""
    jane = place.client("jane", **client)
    jane.create("news").result()
    for number in range(10):
        jane.write("news", f"a{number}", {"n": number, "text": "x" * 1000}).result()
    jane.read("news").result()
    place.lab.run(minutes=30)
    return jane


def read_source(place, client, utility):
    """Return the source of an answer, checked by the messages carried for it."""
    before = place.lab.bill()["messages"].sum()
    result = client.read("news", utility=utility).result()
    carried = place.lab.bill()["messages"].sum() - before
    assert (carried > 0) == ("remote" in set(result.source.values())), result.source
    return "remote" if carried else "local"


@pytest.mark.parametrize(
    ("utility", "expected"),
    [
        (latency(), "local"),  # age has no weight
        (freshness(3600), "local"),
        (freshness(60), "remote"),
        # After half an hour a change is likely: asking pays unless latency, bytes or energy cost more.
        (cost_matrix(stale_s=2, unnecessary_s=0), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + latency(), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + 100 * latency(), "local"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + bandwidth(per_kb_s=0.01), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + bandwidth(per_kb_s=1.0), "local"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + energy(per_j_s=0.01), "remote"),
        (cost_matrix(stale_s=2, unnecessary_s=0) + energy(per_j_s=1.0), "local"),
    ],
)
def test_plan_with_highest_utility_is_chosen(place, utility, expected):
    assert read_source(place, create_reader(place), utility) == expected


def test_energy_utility_asks_the_cloud_only_while_the_radio_is_awake(place):
    """Vary only the state of the radio: utility and age are the same."""
    jane, other = create_reader(place), "a record elsewhere"
    utility = cost_matrix(stale_s=5, unnecessary_s=0) + energy(per_j_s=0.5)
    assert read_source(place, jane, utility) == "local"
    jane.write("news", other, {"n": 0}).result()  # wakes the radio
    assert read_source(place, jane, utility) == "remote"


def test_observed_changes_of_a_table_change_the_plan(place):
    """Value a stored answer less if the table changed between earlier reads."""
    jane, bob = create_reader(place), place.client("bob")
    utility = cost_matrix(stale_s=1.0, unnecessary_s=0.2)
    for number in range(8):
        bob.write("news", "a1", {"n": 100 + number}).result()
        jane.read("news", latest=True).result()
        place.lab.run(minutes=2)
    assert read_source(place, jane, utility) == "remote"
    for _ in range(60):
        jane.read("news", latest=True).result()
        place.lab.run(minutes=2)
    assert read_source(place, jane, utility) == "local"


def test_incomplete_answer_needs_a_utility_of_completeness(place):
    jane = create_reader(place, max_rows=6)  # four of ten records are evicted
    assert read_source(place, jane, latency()) == "remote"
    place.lab.run(minutes=30)
    assert read_source(place, jane, latency() + completeness(worth_s=0.1)) == "local"
    assert read_source(place, jane, latency() + completeness(worth_s=10.0)) == "remote"


def test_outage_leads_to_waiting_or_a_local_answer(place):
    jane = create_reader(place)
    place.lab.faults.cut("jane", minutes=20)
    place.lab.run(seconds=1)
    begun_us = place.lab.world.now_us
    assert read_source(place, jane, cost_matrix(stale_s=5, unnecessary_s=0) + latency()) == "local"
    assert place.lab.world.now_us == begun_us
    jane.read("news", utility=freshness(60), offline="wait").result()
    assert place.lab.world.now_us - begun_us > 19 * 60e6


class Careful(Utility):
    """Utility of one's own: nothing but energy counts while the battery is low."""

    def value(self, plan):
        return 100.0 if plan.source != "local" and plan.query.table == "news" else 0.0

    def cost(self, plan):
        return plan.radio_mj if plan.context["battery"] < 0.2 else 0.0


def test_utility_of_a_read_sees_the_query_and_the_context(place):
    """Mobius 6: utilities that account for battery and bandwidth can be devised."""
    jane = create_reader(place)
    place.lab.devices["jane"].change_context(battery=0.1)
    place.lab.run(seconds=1)
    assert read_source(place, jane, Careful()) == "local"
    place.lab.devices["jane"].change_context(battery=0.9)
    place.lab.run(seconds=1)
    assert read_source(place, jane, Careful()) == "remote"


@pytest.mark.parametrize("policy", [None, ShippedPolicy()], ids=["default", "shipped, none has come"])
def test_writes_that_save_energy_leave_together(place, policy):
    jane = create_reader(place, write_policy=policy)
    utilities = {"s": energy(per_j_s=1000), "l": latency(), "p": None}
    writes = {
        name: [jane.write("news", f"{name}{number}", {"n": number}, utility=utility) for number in range(3)]
        for name, utility in utilities.items()
    }
    place.lab.run(minutes=2)
    assert {name: {write.done() for write in of_name} for name, of_name in writes.items()} == {
        "s": {False}, "l": {True}, "p": {True},
    }  # fmt: skip
    place.lab.run(hours=1)
    assert all(write.done() for write in writes["s"])
    times_us = [write.responded_us for write in writes["s"]]
    assert max(times_us) - min(times_us) < 1_000_000


def write_delays_min(place, read_every_s):
    """Return how long writes wait, two hours apart, of a table that another device reads; None: it does not."""
    jane, bob = create_reader(place), place.client("bob")
    delays_min = []
    for number in range(4):
        write = jane.write("news", f"b{number}", {"n": number}, utility=latency() + energy(per_j_s=300))
        for _ in range(7200 // (read_every_s or 7200)):
            place.lab.run(seconds=read_every_s or 7200)
            if read_every_s is not None:
                bob.read("news", "n > 100", latest=True)
        delays_min.append(round((write.responded_us - write.invoked_us) / 60e6))
    return delays_min


def test_writes_wait_as_the_reads_of_others_admit(place):
    """Mobius 6: delaying a write for too long, against too many messages; the cloud knows who reads."""
    often, never = write_delays_min(place, 30), write_delays_min(type(place)(), None)
    assert often[0] == never[0] == 10, "nothing is known yet"
    assert all(delay_min < 10 for delay_min in often[1:]), often
    assert never == sorted(never)
    assert never[-1] == 30, "for the longer nobody reads, the surer it is"


def write_all(place, utility):
    jane = create_reader(place)
    for number in range(3):
        jane.write("news", f"b{number}", {"n": number}, utility=utility).result()


def test_writes_without_a_utility_ask_nothing(place, monkeypatch):
    """Their messages are those without this measurement, to the byte."""
    choices, add = [], Processor._add_read_interval

    def record(self, now_us, routed, write):
        choices.append(write.asks_read_interval)
        return add(self, now_us, routed, write)

    monkeypatch.setattr(Processor, "_add_read_interval", record)
    write_all(place, None)
    assert set(choices) == {UNSET}
    choices.clear()
    write_all(type(place)(), latency())
    assert choices[-3:] == [True] * 3
