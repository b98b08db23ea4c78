"""Forwarding policies: settings, learnt habits, and rules."""

from __future__ import annotations

import math

import pytest

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import (
    LEARNT,
    Forwarding,
    Item,
    Spool,
    simulate,
)
from mudkit.systems.lasthop.spool.policies import Habits


def test_unified_policy_learns_unset_settings():
    assert Forwarding.of("unified") == Forwarding("unified", LEARNT, LEARNT, LEARNT)
    assert Forwarding.of("unified", delay_s=None).delay_s is None
    assert Forwarding.of("buffer").expiration_threshold_s is None


def test_of_returns_a_policy_unchanged():
    policy = Forwarding("buffer", 16)
    assert Forwarding.of(policy) is policy
    with pytest.raises(ParameterError, match="settings of its own"):
        Forwarding.of(policy, prefetch_limit=8)


HOUR = 3_600_000_000


def test_new_habits_have_default_values():
    habits = Habits()
    assert (habits.read_at_a_time, habits.between_reads_us, habits.delay_us) == (0.0, 0, 0)
    assert habits.share_read == 1.0


def test_read_average_covers_the_last_eight_reads():
    habits = Habits()
    for number in range(20):
        habits.record_read(number * HOUR, 100 if number < 12 else 4)
    assert habits.read_at_a_time == 4


def test_two_reads_a_day_are_eight_waking_hours_apart():
    habits = Habits()
    for number in range(9):
        habits.record_read(number * 12 * HOUR, 1)
    assert habits.between_reads_us == pytest.approx(8.25 * HOUR)


def test_share_read_is_reads_per_arrival():
    habits = Habits()
    for hour in range(200):
        habits.record_arrival(hour * HOUR)
        if hour % 10 == 0:
            habits.record_read(hour * HOUR, 2)
    assert habits.share_read == pytest.approx(0.2)


def test_rates_are_known_from_two_reads_and_two_arrivals_on():
    habits = Habits()
    for hour in (0, 1):
        habits.record_arrival(hour * HOUR)
    for hour in (0, 4):
        habits.record_read(hour * HOUR, 1)
    assert habits.share_read == pytest.approx(0.25)


def test_share_read_is_at_most_one():
    habits = Habits()
    for hour in range(5):
        habits.record_read(hour * HOUR, 10)
        habits.record_arrival(hour * HOUR)
    assert habits.share_read == 1.0
    at_once = Habits()
    for _ in range(3):
        at_once.record_read(HOUR, 1)
        at_once.record_arrival(HOUR)
    assert at_once.share_read == 1.0


def test_delay_covers_nine_of_ten_rank_drops_once_four_are_recorded():
    habits = Habits()
    for minutes in (1, 2, 3):
        habits.record_fall(minutes)
    assert habits.delay_us == 0
    for minutes in range(4, 101):
        habits.record_fall(minutes)
    assert habits.delay_us == 94  # of the last 64: 37 to 100


def test_memory_is_bounded():
    habits = Habits()
    for number in range(1000):
        habits.record_read(number, 1)
        habits.record_arrival(number)
        habits.record_fall(number)
    assert sum(map(len, vars(habits).values())) <= 8 + 8 + 8 + 64 + 64


def fill_device(situation, limit=16):
    room = limit - len(situation.device)
    return situation.waiting[:room] if room > 0 else ()


def build_policy(rule):
    return Forwarding("rule", rule=rule)


def ignore(message):
    pass


@pytest.mark.parametrize("outage", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("expiration", [None, 20_000.0])
def test_rules_reproduce_built_in_policies(outage, expiration):
    settings = {"outage": outage, "expiration": expiration, "threshold": 0.2, "days": 20, "seed": 4}
    buffer, on_demand = (
        simulate(policy=kind, prefetch_limit=16, **settings) for kind in ("buffer", "on-demand")
    )
    assert simulate(policy=build_policy(fill_device), **settings).outcome == buffer.outcome
    all_forwarded = simulate(policy=build_policy(lambda situation: situation.waiting), **settings)
    assert all_forwarded.outcome == all_forwarded.online
    assert simulate(policy=build_policy(lambda situation: []), **settings).outcome == on_demand.outcome


def test_rule_receives_the_situation():
    situations = []
    spool = Spool(0.25, build_policy(lambda situation: situations.append(situation) or ()), ignore, ignore)
    spool.network(0, is_up=True)
    spool.notification(1_000_000, "low", 0.2)
    spool.notification(2_000_000, "good", 0.5, 9_000_000)
    spool.notification(3_000_000, "best", 0.75)
    situation = situations[-1]
    assert (situation.now_s, situation.threshold, situation.device) == (3.0, 0.25, ())
    assert situation.waiting == (Item("best", 0.75, 3.0, math.inf), Item("good", 0.5, 2.0, 9.0))
    assert (situation.read_at_a_time, situation.between_reads_s) == (0.0, 0.0)
    spool.read(4_000_000, 1)
    spool.read(8_000_000, 1)
    assert situations[-1].read_at_a_time == 1.0
    assert situations[-1].between_reads_s == pytest.approx(4 * 16.5 / 24)
    assert situations[-1].waiting == ()


def test_rule_is_called_only_while_the_link_is_up():
    times_s = []
    spool = Spool(0.0, build_policy(lambda situation: times_s.append(situation.now_s) or ()), ignore, ignore)
    spool.notification(1_000_000, 1, 0.5)
    assert times_s == []
    spool.network(2_000_000, is_up=True)
    spool.network(3_000_000, is_up=False)
    spool.notification(4_000_000, 2, 0.5)
    assert times_s == [2.0]
