"""A device is moved by hand where nothing else moves it; what the lab sets itself is refused, not undone."""

import pytest

from mudkit import Lab
from mudkit.errors import ParameterError
from mudkit.events import ContextChanged

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
