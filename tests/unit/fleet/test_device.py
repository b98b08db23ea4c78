"""Devices: places that are set by hand, context that the lab sets itself, and bandwidth."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import ContextChanged
from mudkit.sources.link_replay import LinkReplay

HERE, THERE = (30.0, -97.0), (31.0, -98.0)


class Listener:
    def __init__(self):
        self.told = []

    def handle(self, now_us, event):
        if isinstance(event, ContextChanged):
            self.told.append((now_us, event.context.get("loc")))
        return []


@pytest.mark.parametrize("at", [HERE, None])
def test_a_device_stays_where_it_was_moved(at):
    lab, listener = Lab(), Listener()
    device = lab.device("ann", at=at)
    device.install("test", lambda ports: listener)
    lab.run(minutes=5.5)
    listener.told.clear()
    device.move(*THERE)
    lab.run(minutes=10)
    assert device.loc == THERE
    assert listener.told == [(330_000_000, THERE)]
    placed = lab.trace.table("positions").to_pandas()
    assert (placed["lat"].iloc[-1], placed["lon"].iloc[-1]) == THERE
    assert (placed["lat"] == HERE[0]).sum() == (6 if at else 0)
    assert len(placed) == (16 if at else 11)
    device.move(*HERE)
    lab.run(minutes=2)
    assert device.loc == HERE
    assert not lab.trace.table("positions").to_pandas().duplicated(["device", "ts"]).any()


def test_one_of_a_fleet_is_moved_alone():
    lab = Lab()
    first, second = lab.fleet(2)
    first.move(*THERE)
    lab.run(minutes=2)
    assert (first.loc, second.loc) == (THERE, None)


def test_what_moves_by_itself_is_not_moved():
    lab = Lab()
    device = lab.device("ann", mobility="waypoint")
    before = device.loc
    with pytest.raises(ParameterError, match="at="):
        device.move(*THERE)
    with pytest.raises(ParameterError, match="its mobility"):
        device.change_context(loc=THERE)
    assert device.loc == before


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ((91.0, 0.0), "no place"),
        ((0.0, "east"), "lon of Device.move"),
        ((float("nan"), 0.0), "lat of Device.move"),
    ],
)
def test_what_is_no_place_is_refused(where, problem):
    device = Lab().device("ann", at=HERE)
    with pytest.raises(ParameterError, match=problem):
        device.move(*where)
    assert device.loc == HERE


@pytest.mark.parametrize(
    ("given", "field", "remedy"),
    [
        ({"at": HERE}, "loc", "device.move"),
        ({"battery_j": 10.0}, "battery_share", "battery_j"),
        ({}, "bandwidth_kbps", "LinkReplay"),
    ],
)
def test_a_change_that_would_be_undone_is_refused(given, field, remedy):
    device = Lab().device("ann", **given)
    with pytest.raises(ParameterError, match=remedy):
        device.change_context(age=3, **{field: 1})
    assert "age" not in device.context


def test_what_nobody_else_sets_is_changed():
    device = Lab().device("ann", link="ideal")
    device.change_context(loc=THERE, battery_share=0.5, bandwidth_kbps=3.0)
    assert device.snapshot() == {"loc": THERE, "battery_share": 0.5, "bandwidth_kbps": 3.0}


@pytest.mark.parametrize(
    "given",
    [
        {"at": HERE, "loc": THERE},
        {"mobility": "waypoint", "loc": THERE},
        {"battery_j": 9.0, "battery_share": 0.1},
    ],
)
def test_a_device_is_not_given_two_places_or_batteries(given):
    with pytest.raises(ParameterError, match="sets this field itself"):
        Lab().device("ann", **given)


class Watches:
    """Notes what it is told."""

    def __init__(self, answer):
        self.told = answer

    def handle(self, now_us, event):
        if isinstance(event, ContextChanged):
            self.told.append((now_us, event.context.get("bandwidth_kbps")))
        return ()


def installed(device, watch=("bandwidth_kbps",)):
    answer = []
    device.install("test", lambda ports: Watches(answer), watch=watch)
    return answer


def test_it_is_told_at_the_start_and_with_another_network():
    lab = Lab(seed=1)
    device = lab.device("pda", link="wifi", at=(0.0, 0.0))
    answer = installed(device)
    lab.run(seconds=5)
    device.change_network("edge")
    lab.run(seconds=5)
    assert answer == [(0, 40_000.0), (5_000_000, 180.0)]


def test_who_does_not_watch_is_not_told():
    lab = Lab(seed=1)
    device = lab.device("pda", link="wifi", at=(0.0, 0.0), display_px=3)
    answer = installed(device, watch=())
    device.change_network("edge")
    lab.run(seconds=5)
    assert answer == [(0, None)]


def test_a_link_without_limit_has_no_number():
    lab = Lab(seed=1)
    answer = installed(lab.device("pda", link="ideal", at=(0.0, 0.0)))
    lab.run(seconds=5)
    assert answer == [(0, None)]


def test_what_was_measured_is_told_when_it_changes():
    start = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    rows = [
        {
            "device": "a",
            "ts": start + dt.timedelta(seconds=10 * n),
            "up": True,
            "down_kbps": kbps,
            "up_kbps": 10.0,
            "latency_ms": 5.0,
        }
        for n, kbps in enumerate((1000.0, 250.0, 4000.0))
    ]
    lab = Lab(seed=1)
    answer = installed(lab.device("pda", link=LinkReplay(pa.Table.from_pylist(rows)), at=(0.0, 0.0)))
    lab.run(seconds=25)
    assert answer == [(0, 1000.0), (10_000_000, 250.0), (20_000_000, 4000.0)]
