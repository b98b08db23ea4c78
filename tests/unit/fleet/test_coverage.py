"""Coverage: who is attached to which access point, and at what rate, against a model that is written down plainly."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from examples import examples
from fleet_machines import Puppet
from hypothesis import given
from hypothesis import strategies as st

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import LinkUp, Send, SendFailed
from mudkit.fleet import LINKS
from mudkit.fleet.coverage import Coverage
from mudkit.sources.courses import Places
from mudkit.units import KM_PER_DEGREE, distance_km

WIFI = LINKS["wifi"]


def at(east_m: float) -> tuple[float, float]:
    """Return a place on the equator, some metres east of Greenwich."""
    return (0.0, east_m / 1000.0 / KM_PER_DEGREE)


def step_of_80211g(distance_m: float, range_m: float) -> float:
    """Return the data rate in Mbit/s at a distance, of 54 nearby, for a range of 91 m that is stretched."""
    for reach_m, mbps in ((27, 54), (29, 48), (30, 36), (42, 24), (54, 18), (64, 12), (76, 9)):
        if distance_m * 91 / range_m <= reach_m:
            return mbps
    return 6


places = st.integers(-150, 450).map(lambda metres: metres + 0.5)
moves = st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), places), max_size=14)


@examples(60)
@given(moves=moves)
def test_devices_are_attached_and_share_the_rate_as_in_a_model(moves: Any) -> None:
    lab = Lab(seed=1)
    points = {"west": (0.0, 100.0), "east": (150.0, 200.0)}
    for name, (east_m, range_m) in points.items():
        lab.access_point(name, at(east_m), range_m)
    devices = {name: lab.device(name, at=at(1000), roam=True) for name in ("ann", "bob", "eve")}
    where = dict.fromkeys(devices, 1000.0)
    used: dict[str, str | None] = dict.fromkeys(devices)
    for name, east_m in moves:
        devices[name].move(*at(east_m))
        where[name] = east_m
        away_m = {point: abs(east_m - middle_m) for point, (middle_m, _) in points.items()}
        present = used[name]
        joinable = {p: m for p, m in away_m.items() if m <= 0.95 * points[p][1] and p != present}
        best = min(joinable, key=joinable.__getitem__, default=None)
        if present is not None and away_m[present] <= points[present][1]:
            if best is not None and away_m[best] <= away_m[present] - 5.0:
                used[name] = best
        else:
            used[name] = best
        sharers = {point: [d for d in devices if used[d] == point] for point in points}
        assert {point.name: sorted(d.name for d in point.attached) for point in lab.world.coverage} == sharers
        for device in devices:
            point = used[device]
            if point is None:
                assert devices[device].network == "lte"
                continue
            middle_m, range_m = points[point]
            share = step_of_80211g(abs(where[device] - middle_m), range_m) / 54 / len(sharers[point])
            link = devices[device].link
            assert devices[device].network == "wifi"
            assert link.down_kbps == pytest.approx(WIFI.down_kbps * share)
            assert link.down.us_per_byte == pytest.approx(8000 / (WIFI.down_kbps * share))
            assert link.up.us_per_byte == pytest.approx(8000 / (WIFI.up_kbps * share))


@examples(60)
@given(
    middle=st.tuples(st.sampled_from([0.0, 60.0, 89.99, -90.0]), st.sampled_from([0.0, 180.0, -179.9999])),
    steps=st.lists(
        st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.sampled_from([1, 30, 300])), min_size=1, max_size=12
    ),
)
def test_devices_on_any_way_are_attached_by_their_distance(middle: Any, steps: Any) -> None:
    """Anywhere on the globe: joined within 95 % of the range, left beyond the whole, however it came there."""
    lab = Lab(seed=1)
    lab.access_point("cafe", middle, 100)
    ann = lab.device("ann", at=(middle[0] * 0.9, 0.0), roam=True)
    is_attached = ann.network == "wifi"
    for north, east, scale_m in steps:
        degrees = scale_m / 1000 / KM_PER_DEGREE
        lat = min(max(middle[0] + north * degrees, -90.0), 90.0)
        lon = (middle[1] + east * degrees / max(math.cos(math.radians(lat)), 1e-6) + 540) % 360 - 180
        ann.move(lat, lon)
        away_m = 1000 * float(distance_km(lat, lon, *middle))
        is_attached = away_m <= (100 if is_attached else 95)
        assert ann.network == ("wifi" if is_attached else "lte")


class Walk:
    """Mobility of three devices that are at given places on the equator, in metres, each for a minute."""

    until_us = None

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def course(self, seed: int, devices: Any, start_us: int) -> Walk:
        """Begin the walk."""
        return self

    def at(self, t_us: int) -> Places:
        """Return the places of the minute."""
        east_m = self._steps[min(t_us // 60_000_000, len(self._steps) - 1)]
        return Places(np.zeros(3), np.array([at(metres)[1] for metres in east_m]), np.zeros(3))


@examples(60)
@given(steps=st.lists(st.tuples(places, places, places), min_size=2, max_size=12))
def test_devices_of_a_fleet_are_attached_by_their_distances(steps: Any) -> None:
    """Each of the fleet joins within 95 % of the range and leaves beyond the whole, as a device that is moved."""
    lab = Lab(seed=1)
    lab.access_point("cafe", at(0), 100)
    lab.device("ann", at=at(1000), roam=True)
    fleet = lab.fleet(3, mobility=Walk(steps), roam=True)
    attached = [False] * 3
    for east_m in steps:
        attached = [abs(m) <= (100 if was else 95) for m, was in zip(east_m, attached, strict=True)]
        assert [device.network == "wifi" for device in fleet] == attached
        lab.run(minutes=1)


def test_devices_far_from_ranges_are_not_followed(monkeypatch):
    """Ten kilometres away, a metre a minute changes nothing: no call a device and step."""
    followed: list[str] = []
    follow = Coverage.follow
    monkeypatch.setattr(
        Coverage, "follow", lambda self, device: (followed.append(device.name), follow(self, device))
    )
    lab = Lab(seed=1)
    lab.access_point("cafe", at(0), 100)
    fleet = lab.fleet(3, mobility=Walk([(10_000 + n,) * 3 for n in range(100)]), roam=True)
    lab.run(hours=1)
    assert followed == [device.name for device in fleet]


def test_device_that_is_far_from_ranges_joins_a_new_one():
    lab = Lab(seed=1)
    lab.access_point("cafe", at(0), 100)
    ann = lab.device("ann", at=at(10_000), roam=True)
    ann.move(*at(10_001))
    lab.access_point("bar", at(10_050), 100)
    assert ann.network == "wifi"
    ann.move(*at(9_000))
    assert ann.network == "lte"


def test_leaving_is_a_change_of_network():
    lab = Lab(seed=1)
    lab.server("server").install("puppets", Puppet)
    ann = lab.device("ann", at=at(0), roam=True)
    lab.access_point("cafe", at(0), 100)
    puppets: list[Puppet] = []

    def make(ports: Any) -> Puppet:
        puppets.append(Puppet(ports))
        return puppets[-1]

    process = ann.install("puppets", make)
    process.call("do", effects=[Send("server", "x" * 10_000_000)])
    lab.run(seconds=1)
    ann.move(*at(101))
    lab.run(seconds=1)
    assert ann.network == "lte"
    assert len(puppets[0].of(SendFailed)) == 1
    assert [event.network for event in puppets[0].of(LinkUp)] == ["wifi", "lte"]
    assert len({event.address for event in puppets[0].of(LinkUp)}) == 2


def test_edge_is_crossed_without_switching_to_and_fro():
    """Joined within 95 % of the range, left beyond the whole."""
    lab = Lab(seed=1)
    ann = lab.device("ann", at=at(200), roam=True)
    lab.access_point("cafe", at(0), 100)
    networks = []
    for east_m in (97, 94, 97, 99, 97, 101, 97):
        ann.move(*at(east_m))
        networks.append(ann.network)
    assert networks == ["lte", "wifi", "wifi", "wifi", "wifi", "lte", "lte"]


def test_devices_that_move_follow_and_others_do_not():
    """A fleet in Austin, with access points over all of the town; who does not roam stays."""
    lab = Lab(seed=5)
    roaming = lab.fleet(3, mobility="commute", roam=True)
    staying = lab.fleet(3, mobility="commute", prefix="other")
    lab.access_point("town", "austin", 100_000)
    assert {device.network for device in roaming} == {"wifi"}
    lab.run(minutes=5)
    assert {device.network for device in roaming} == {"wifi"}
    assert {device.network for device in staying} == {"lte"}
    assert len(next(iter(lab.world.coverage)).attached) == 3


def test_device_without_a_place_has_no_access_point():
    lab = Lab(seed=1)
    lab.access_point("cafe", at(0), 100)
    assert lab.device("ann", roam=True).network == "lte"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "cafe"}, "exists already"),
        ({"range_m": 0.0}, "range_m"),
        ({"range_m": -1.0}, "range_m"),
        ({"at": "nowhere"}, "no such city"),
        ({"link": "wify"}, "did you mean 'wifi'"),
    ],
)
def test_access_point_without_sense_is_refused(wrong, words):
    lab = Lab(seed=1)
    lab.access_point("cafe", at(0), 100)
    with pytest.raises(ParameterError, match=words):
        lab.access_point(**{"name": "bar", "at": at(0), "range_m": 100.0, "link": "wifi"} | wrong)
