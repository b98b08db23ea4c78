"""The drift alarm, and the world of cars and drivers; the whole loop is in tests/spark."""

import pytest

from mudkit.errors import ParameterError
from mudkit.experiment.closed_loop import DriftAlarm
from mudkit.experiment.commuters import Commuters
from mudkit.systems.mud import AlwaysRemote
from mudkit.systems.mud.policies.policies import NearAndRecent


@pytest.mark.parametrize(
    ("reads", "stale", "rings"),
    [(100, 8, False), (100, 40, True), (400, 30, False), (400, 2, True), (100, 14, False), (40, 40, False)],
)
def test_the_alarm_rings_when_the_share_can_hardly_be_what_was_promised(reads, stale, rings):
    alarm = DriftAlarm(0.05, 0.12)
    half = alarm.seen(reads // 2, stale // 2)
    assert half.seen(reads - reads // 2, stale - stale // 2).rings is rings
    assert not alarm.rings


def test_wilsons_interval():
    low, high = DriftAlarm(0.0, 1.0).seen(10, 1).interval  # Brown, Cai and DasGupta (2001) give it so
    assert (round(low, 4), round(high, 4)) == (0.0179, 0.4042)
    assert DriftAlarm(0.0, 1.0).interval == (0.0, pytest.approx(0.7935, abs=1e-3))


def test_bad_input():
    for low, high in ((-0.1, 0.5), (0.5, 0.4), (0.2, 1.1)):
        with pytest.raises(ParameterError):
            DriftAlarm(low, high)
    with pytest.raises(ParameterError):
        DriftAlarm(0.0, 1.0).seen(3, 4)
    for options in ({"cars": 0}, {"days": 0}, {"every_s": 0}, {"reads_per_day": -1}):
        with pytest.raises(ParameterError):
            Commuters(**options)


def test_who_always_asks_misses_nothing_and_who_does_not_saves():
    plan = Commuters(cars=3, days=1, every_s=1800.0, reads_per_day=24.0)
    always, rule = (plan.drive(2, "2010-03-01", policy) for policy in (AlwaysRemote(), NearAndRecent()))
    assert always.reads["is_sent"].all()
    assert (always.reads["completeness"] == 1).mean() > 0.97  # a report may be on its way
    assert list(always.reads["at_s"]) == list(rule.reads["at_s"])
    assert list(always.reads["points"]) == list(rule.reads["points"])
    local = ~rule.reads["is_sent"]
    assert 0 < local.sum() < len(local)
    assert (rule.reads["missing"][local] > 0).any()
    assert rule.lab.bill()["messages"].sum() < always.lab.bill()["messages"].sum()
    other = plan.drive(2, "2010-03-08", AlwaysRemote())
    assert list(other.reads["at_s"]) != list(always.reads["at_s"])
