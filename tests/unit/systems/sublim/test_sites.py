"""Choice of an access point by a device."""

from __future__ import annotations

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.systems.sublim import AccessPoint, PublishServer, Subscriber
from mudkit.systems.sublim.sites import Site, choose_access_point

KM = 1 / 111.195
WEST, EAST = Site("west", (0.0, 0.0), 60.0, True), Site("east", (0.0, 0.1 * KM), 60.0, True)


@pytest.mark.parametrize(
    ("at_m", "current", "expected"),
    [
        (10, None, "west"),
        (90, None, "east"),
        (49, "east", "east"),  # nearer by less than the margin: stay
        (45, "east", "west"),
        (-70, None, "west"),  # out of range of all: the nearest
        (-70, "east", "east"),  # or the current one
        (10, "gone", "west"),
        (-58, "east", "east"),  # its network is joined within 95 % of the range
        (-56, "east", "west"),
        (-58, "west", "west"),  # and left beyond the whole
    ],
)
def test_nearest_site_in_range_is_chosen_with_hysteresis(at_m, current, expected):
    assert choose_access_point([WEST, EAST], (0.0, at_m / 1000 * KM), current) == expected


def test_first_site_is_chosen_without_positions():
    assert choose_access_point([WEST, EAST], None, None) == "west"
    assert choose_access_point([Site("all", None, 0.0, True)], (5.0, 5.0), None) == "all"
    assert choose_access_point([], (0.0, 0.0), None) is None


def test_subscriber_waits_for_the_first_access_point():
    lab = Lab(seed=1)
    net = PublishServer(lab)
    doctor = Subscriber(lab.device("doctor"), net)
    with pytest.raises(ParameterError, match="No access point serves"):
        doctor.state()
    lab.run(seconds=10)
    AccessPoint(lab, net)
    lab.run(seconds=10)
    assert doctor.state()["epoch"] == 1


def test_subscriber_that_roams_uses_the_network_of_its_access_point():
    """One place and range: where it is served from is where it has Wi-Fi."""
    lab = Lab(seed=1)
    net = PublishServer(lab)
    point = AccessPoint(lab, net, at=(0.0, 0.0), range_m=60.0)
    doctor = lab.device("doctor", link="lte", at=(0.0, 0.0), roam=True)
    nurse = lab.device("nurse", link="lte", at=(0.0, 0.0))
    for device in (doctor, nurse):
        Subscriber(device, net)
    assert lab.access_points[point.name].range_m == 60.0
    assert (doctor.network, nurse.network) == ("wifi", "lte")
    lab.run(seconds=10)
    doctor.move(0.0, 1.0 * KM)
    lab.run(seconds=10)
    assert doctor.network == "lte"
