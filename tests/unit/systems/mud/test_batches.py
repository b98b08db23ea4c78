"""Writes that wait: when one is due, one message takes along all that waits (Mobius 7.3)."""

from __future__ import annotations

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.mud import Artefact, ShippedPolicy
from mudkit.systems.mud.policies.policies import NEVER, Later


class ByColumn:
    """Each write says how long it waits."""

    def delay(self, write, context):
        return write["data"]["wait"]


def writer(place, policy):
    ann = place.client("ann", write_policy=policy)
    ann.create("news", split=["m"]).result()
    place.lab.run(minutes=1)
    return ann


def up(place):
    bill = place.lab.bill()
    mine = bill[(bill["device"] == "ann") & (bill["direction"] == "up")]
    return int(mine["messages"].sum()), int(mine["bytes"].sum()), int(mine["wakeups"].sum())


def test_one_message_takes_along_all_that_waits(place):
    ann = writer(place, Later(600))
    before = up(place)
    written = []
    for key in ("a", "x", "b"):  # of two partitions
        written.append(ann.write("news", key, {"n": key}))
        place.lab.run(minutes=4)
    assert [each.done() for each in written] == [True] * 3
    assert [each.result() for each in written] == [1, 1, 1]
    after = up(place)
    assert (after[0] - before[0], after[2] - before[2]) == (1, 1)
    gaps_s = [(each.responded_us - each.invoked_us) / 1e6 for each in written]
    assert [round(gap_s / 60) for gap_s in gaps_s] == [10, 6, 2]
    assert sorted(ann.read("news").result().records) == ["a", "b", "x"]


def test_what_is_held_for_ever_is_not_taken_along(place):
    ann = writer(place, ByColumn())
    ann.write("news", "a", {"wait": NEVER})
    ann.write("news", "b", {"wait": 1800})
    ann.write("news", "c", {"wait": 60})
    place.lab.run(minutes=2)
    assert [each["key"] for each in ann.pending().result()] == ["a"]


def test_a_message_that_is_lost_is_sent_again(place):
    ann = writer(place, Later(60))
    written = [ann.write("news", key, {"n": 1}) for key in "abc"]
    place.lab.run(seconds=59)
    place.lab.faults.cut("ann", minutes=10)
    place.lab.run(minutes=9)
    assert not any(each.done() for each in written)
    place.lab.run(minutes=5)
    assert [each.result() for each in written] == [1, 1, 1]


@pytest.mark.parametrize(
    "faults", [{"loss_share": 0.4}, {"repeat_share": 0.5}, {"delay_share": 0.5, "delay_s": 20.0}]
)
def test_each_is_applied_once_whatever_happens_to_the_message(place, faults):
    ann, bob = writer(place, Later(30)), place.client("bob")
    place.lab.faults.messages(**faults)
    for number in range(12):
        for key in ("a", "x"):
            ann.write("news", f"{key}{number % 3}", {"n": number})
        place.lab.run(seconds=20)
    place.lab.faults.messages()
    place.lab.run(hours=1)
    assert ann.pending().result() == []
    answer = bob.read("news", latest=True).result()
    assert {key: record["n"] for key, record in answer.records.items()} == {
        f"{key}{number % 3}": number for number in (9, 10, 11) for key in ("a", "x")
    }
    assert set(answer.versions.values()) == {4}


def test_a_gateway_that_dies_is_no_matter(place):
    ann = writer(place, Later(60))
    written = [ann.write("news", key, {"n": 1}) for key in "abc"]
    for number in (1, 2):
        place.lab.faults.kill(f"mud-gateway-{number}")
    place.lab.run(minutes=2)
    for number in (1, 2):
        place.lab.faults.restart(f"mud-gateway-{number}")
    place.lab.run(minutes=5)
    assert [each.result() for each in written] == [1, 1, 1]


def test_in_another_devices_name_none_is_taken(place):
    ann = writer(place, Later(60))
    (process,) = place.lab.world.hosts["ann"].processes
    process.machine._connection.endpoint = "bob/news"
    written = [ann.write("news", key, {"n": 1}) for key in "ab"]
    place.lab.run(minutes=5)
    assert not any(each.done() for each in written)
    assert len(place.client("cem").read("news", latest=True).result()) == 0
    incidents = place.lab.frame("incidents")
    dropped = incidents[incidents["incident"] == "dropped"]
    assert set(dropped["detail"]) == {"'asks' from ann/mud-news", "'ask' from ann/mud-news"}
    assert set(dropped["device"]) <= {"mud-gateway-1", "mud-gateway-2"}


def test_a_shipped_delay_is_one_for_all_that_waits(place):
    ann = writer(place, ShippedPolicy(fallback=Later(600)))
    first = ann.write("news", "a", {"n": 1})
    place.lab.run(minutes=1)
    document = Artefact.create("write", 1, ["lat"], [[0]], [60.0])
    place.cloud.ship(document, app="news").result()
    place.lab.run(seconds=10)
    before = up(place)
    second = ann.write("news", "b", {"n": 1})
    place.lab.run(minutes=2)
    assert first.done()  # it would have waited for ten minutes, but a message went
    assert second.done()
    assert up(place)[0] - before[0] == 1


@pytest.mark.parametrize("delay_s", [-1, float("nan"), "60"])
def test_a_delay_is_a_number(delay_s):
    with pytest.raises(ParameterError, match="delay_s"):
        Later(delay_s)
