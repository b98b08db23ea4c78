"""Access points and subscribers without state, beside those with one."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.systems.sublim import AccessPoint, PlainSubscriber, Policy, PublishServer, Rule, Subscriber
from mudkit.systems.sublim._policy.actions import Every

NORTH, SOUTH = (0.01, 0.0), (0.0, 0.0)  # more than a kilometre apart


@pytest.fixture
def ward():
    lab = Lab(seed=3)
    net = PublishServer(lab)
    points = [AccessPoint(lab, net, at=NORTH), AccessPoint(lab, net, at=SOUTH, stateful=False)]
    return lab, net, points


def pulses(subscriber):
    return [each["pulse"] for each in subscriber.read().result()]


@pytest.mark.parametrize("place", [NORTH, SOUTH])
def test_a_predicate_over_the_message_decides_at_access_points_of_both_kinds(ward, place):
    lab, net, _ = ward
    nurse = PlainSubscriber(lab.device("nurse", link="wifi", at=place), net, "message.pulse < 50")
    lab.run(seconds=10)
    for pulse in (48, 70, 30):
        net.publish({"pulse": pulse})
    lab.run(seconds=10)
    assert pulses(nurse) == [48, 30]


def test_it_goes_to_another_access_point_and_gets_nothing_twice(ward):
    lab, net, _ = ward
    device = lab.device("nurse", link="wifi", at=NORTH)
    nurse = PlainSubscriber(device, net, "message.pulse < 50")
    lab.run(seconds=10)
    net.publish({"pulse": 1})
    lab.run(seconds=10)
    device.measured("loc", SOUTH)
    lab.run(seconds=10)
    net.publish({"pulse": 2})
    lab.run(seconds=10)
    assert pulses(nurse) == [1, 2]


def test_what_comes_while_it_is_away_is_lost(ward):
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
    assert pulses(nurse) == [2]


def test_an_access_point_that_comes_back_learns_of_its_subscribers_again(ward):
    lab, net, points = ward
    nurse = PlainSubscriber(lab.device("nurse", link="wifi", at=SOUTH), net, "message.pulse < 50")
    lab.run(seconds=10)
    lab.faults.kill(points[1].name)
    lab.faults.restart(points[1].name)
    lab.run(minutes=2)
    net.publish({"pulse": 2})
    lab.run(seconds=10)
    assert pulses(nurse) == [2]


def test_near_a_plain_access_point_a_state_is_kept_by_the_one_that_has_it(ward):
    lab, net, points = ward
    device = lab.device("doctor", link="wifi", at=NORTH)
    doctor = Subscriber(device, net)
    doctor.set_policy(Policy("limit", [Rule(None, [Every(300)])])).result()
    net.publish({"pulse": 1})
    lab.run(seconds=10)
    device.measured("loc", SOUTH)
    lab.run(seconds=10)
    net.publish({"pulse": 2})
    lab.run(minutes=5)
    net.publish({"pulse": 3})
    lab.run(seconds=10)
    assert pulses(doctor) == [1, 3]
    assert points[0].state("doctor") is not None
    assert points[1].state("doctor") is None
