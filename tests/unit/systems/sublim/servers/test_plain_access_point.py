"""Plain access points and subscribers, alone and beside stateful ones."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.events import LinkUp, Ports, Received, TimerFired
from mudkit.fleet.store import MemoryStore
from mudkit.systems.sublim import AccessPoint, PlainSubscriber, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Every
from mudkit.systems.sublim.messages import Join
from mudkit.systems.sublim.servers.plain_access_point import PlainAccessPointMachine

NORTH, SOUTH = (0.01, 0.0), (0.0, 0.0)  # more than one kilometre apart


@pytest.fixture
def ward():
    lab = Lab(seed=3)
    net = PublishServer(lab)
    points = [AccessPoint(lab, net, at=NORTH), AccessPoint(lab, net, at=SOUTH, stateful=False)]
    return lab, net, points


def read_pulses(subscriber):
    return [message["pulse"] for message in subscriber.read().result()]


@pytest.mark.parametrize("place", [NORTH, SOUTH])
def test_both_kinds_of_access_point_apply_a_plain_predicate(ward, place):
    lab, net, _ = ward
    nurse = PlainSubscriber(lab.device("nurse", link="wifi", at=place), net, "message.pulse < 50")
    lab.run(seconds=10)
    for pulse in (48, 70, 30):
        net.publish({"pulse": pulse})
    lab.run(seconds=10)
    assert read_pulses(nurse) == [48, 30]


def test_plain_subscriber_moves_without_duplicates(ward):
    lab, net, _ = ward
    device = lab.device("nurse", link="wifi", at=NORTH)
    nurse = PlainSubscriber(device, net, "message.pulse < 50")
    lab.run(seconds=10)
    net.publish({"pulse": 1})
    lab.run(seconds=10)
    device.set_measured("loc", SOUTH)
    lab.run(seconds=10)
    net.publish({"pulse": 2})
    lab.run(seconds=10)
    assert read_pulses(nurse) == [1, 2]


def test_messages_published_during_disconnection_are_lost(ward):
    lab, net, _ = ward
    nurse = PlainSubscriber(lab.device("nurse", link="wifi", at=SOUTH), net, "message.pulse < 50")
    lab.run(seconds=10)
    lab.faults.cut("nurse")
    net.publish({"pulse": 1})
    lab.run(seconds=10)
    lab.faults.mend("nurse")
    lab.run(seconds=10)
    net.publish({"pulse": 2})
    lab.run(seconds=10)
    assert read_pulses(nurse) == [2]


def test_restarted_plain_access_point_serves_its_subscribers_again(ward):
    lab, net, points = ward
    nurse = PlainSubscriber(lab.device("nurse", link="wifi", at=SOUTH), net, "message.pulse < 50")
    lab.run(seconds=10)
    lab.faults.kill(points[1].name)
    lab.faults.restart(points[1].name)
    lab.run(minutes=2)
    net.publish({"pulse": 2})
    lab.run(seconds=10)
    assert read_pulses(nurse) == [2]


def test_messages_are_not_sent_to_the_next_owner_of_an_address(ward):
    lab, net, _ = ward
    nurse, porter = (
        PlainSubscriber(lab.device(name, link="wifi", at=SOUTH), net, predicate)
        for name, predicate in (("nurse", "message.pulse < 50"), ("porter", "message.pulse > 90"))
    )
    lab.faults.change_address("nurse")
    lab.run(minutes=2)
    address = lab.world.hosts["nurse"].address
    lab.faults.switch_off("nurse")
    lab.faults.change_address("nurse")
    lab.faults.change_address("porter", address)
    lab.run(seconds=10)
    sent = []
    lab.world.fault_hook = lambda transfer: sent.append(transfer.to.split("/")[0]) or (0,)
    for pulse in (2, 99):
        net.publish({"pulse": pulse})
    lab.run(seconds=10)
    assert sent.count(address) == 1
    assert read_pulses(porter) == [99]
    lab.faults.switch_on("nurse")
    assert read_pulses(nurse) == []


def test_state_stays_at_its_access_point_near_a_plain_one(ward):
    lab, net, points = ward
    device = lab.device("doctor", link="wifi", at=NORTH)
    doctor = Subscriber(device, net)
    doctor.set_policy(Policy("limit", [Rule(None, [Every(300)])])).result()
    net.publish({"pulse": 1})
    lab.run(seconds=10)
    device.set_measured("loc", SOUTH)
    lab.run(seconds=10)
    net.publish({"pulse": 2})
    lab.run(minutes=5)
    net.publish({"pulse": 3})
    lab.run(seconds=10)
    assert read_pulses(doctor) == [1, 3]
    assert points[0].state("doctor") is not None
    assert points[1].state("doctor") is None


def test_plain_access_point_joins_until_the_publish_server_answers():
    machine = PlainAccessPointMachine(Ports(MemoryStore(), bytes, "ap"), "server")
    for now_us, event in ((0, LinkUp("ap", "server")), (5_000_000, TimerFired("join"))):
        sent, timer = machine.handle(now_us, event)
        assert (sent.to, sent.message, timer.name) == ("server", Join(), "join")
    flood = {"kind": "messages", "last": 0, "first": 1, "messages": []}
    machine.handle(6_000_000, Received("server", flood))
    assert machine.handle(10_000_000, TimerFired("join")) == ()
