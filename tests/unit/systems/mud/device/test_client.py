"""The client's machine: what it refuses by itself, and what its parts do for it."""

from __future__ import annotations

import pytest
from mud_place import listen

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.mud import Client, Cloud
from mudkit.systems.mud.policies.policies import NEVER


class Held:
    """A write policy."""

    def __init__(self, delay):
        self._delay = delay

    def delay(self, write, context):
        return self._delay


@pytest.fixture
def lab():
    return Lab(seed=7)


@pytest.fixture
def cloud(lab):
    return Cloud(lab, replicas=0, gateways=1)


def client(lab, cloud, name="jane", **more):
    return Client(lab.device(name), cloud, app="news", token=lab.token(name, "news"), **more)


def test_a_table_that_cannot_be_is_refused_without_the_cloud(lab, cloud):
    jane = client(lab, cloud)
    lab.faults.cut("jane")
    with pytest.raises(ParameterError, match="'public' or 'app' or 'user'"):
        jane.create("news", acl="nobody")
    later = [
        jane.create("news"),
        jane.alter("news", add={"n": "number"}),
        jane.alter("\n"),
        jane.drop("news"),
    ]
    lab.run(seconds=1)
    # What no table can be called the cloud would not even take.
    assert [each.status for each in later] == ["open", "open", "failed", "open"]


def test_what_was_asked_is_asked_again_until_it_is_answered(lab, cloud):
    jane = client(lab, cloud)
    lab.faults.kill("mud-gateway-1")
    made = jane.create("news")
    lab.run(minutes=1)
    assert not made.done()
    lab.faults.restart("mud-gateway-1")
    lab.run(minutes=1)
    assert made.status == "ok"


def test_a_write_that_waits_goes_when_it_is_due(lab, cloud):
    client(lab, cloud, "ann").create("news").result()
    jane = client(lab, cloud, write_policy=Held(30.0))
    made = jane.write("news", "a", {"n": 1})
    lab.run(seconds=29.9)
    assert not made.done()
    lab.run(seconds=1)
    assert made.status == "ok"


def test_what_is_held_stays_and_what_is_pending_goes_in_another_life(lab, cloud):
    client(lab, cloud, "ann").create("news").result()
    jane, bob = client(lab, cloud), client(lab, cloud, "bob", write_policy=Held(NEVER))
    for each, name in ((jane, "jane"), (bob, "bob")):
        lab.faults.cut(name)
        each.write("news", name, {"n": 1})
        lab.run(seconds=1)
        lab.faults.kill(name)
        lab.faults.mend(name)
        lab.faults.restart(name)
    lab.run(minutes=1)
    assert jane.pending().result() == []
    assert [each["key"] for each in bob.pending().result()] == ["bob"]
    assert set(client(lab, cloud, "cem").read("news").result().records) == {"jane"}


def test_who_listens_hears_it_over_heartbeats_too(lab, cloud):
    jane = client(lab, cloud)
    jane.create("news").result()
    answer = listen(jane)
    lab.run(hours=3)
    jane.write("news", "a", {"n": 1}).result()
    lab.run(minutes=1)
    assert [each.version for each in answer] == [1]


@pytest.mark.parametrize("begin", [
    lambda jane: jane.write("\n", "a", {}), lambda jane: jane.read("\n"),
    lambda jane: jane.read("\n", type="continuous", callback=print),
], ids=["write", "read", "continuous"])  # fmt: skip
def test_a_name_that_no_table_can_have_is_refused_at_once(lab, cloud, begin):
    jane = client(lab, cloud)
    lab.faults.cut("jane")
    refused = begin(jane)
    lab.run(seconds=1)
    assert refused.status == "failed"


def test_a_lost_hello_is_sent_again(lab, cloud):
    ann, jane = client(lab, cloud, "ann"), client(lab, cloud)
    ann.create("news").result()
    heard = []
    for name in cloud.notification_servers:
        lab.faults.kill(name.split("/")[0])
    jane.read("news", type="continuous", callback=lambda change: heard.append(change.key))
    lab.run(seconds=30)
    for name in cloud.notification_servers:
        lab.faults.restart(name.split("/")[0])
    lab.run(minutes=1)
    ann.write("news", "a", {"n": 1}).result()
    lab.run(seconds=10)
    assert heard == ["a"]


def test_of_a_dropped_table_nothing_is_held(lab, cloud):
    jane = client(lab, cloud)
    jane.create("news").result()
    jane.write("news", "a", {"n": 1}).result()
    assert [each["key"] for each in jane.holdings("news").result()] == ["a"]
    jane.drop("news").result()
    assert jane.holdings("news").result() == []


def test_a_display_names_the_user_of_the_token(lab, cloud):
    assert "user jane" in repr(client(lab, cloud))
    nobody = Client(lab.device("nobody"), cloud, app="news", token=None)
    assert "user" not in repr(nobody)
