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


def test_the_unified_policy_learns_what_is_not_set():
    assert Forwarding.of("unified") == Forwarding("unified", LEARNT, LEARNT, LEARNT)
    assert Forwarding.of("unified", delay_s=None).delay_s is None
    assert Forwarding.of("buffer").expiration_threshold_s is None


def test_a_policy_is_taken_as_it_is():
    policy = Forwarding("buffer", 16)
    assert Forwarding.of(policy) is policy
    with pytest.raises(ParameterError, match="settings of its own"):
        Forwarding.of(policy, prefetch_limit=8)


HOUR = 3_600_000_000


def test_nothing_is_known_at_first():
    habits = Habits()
    assert (habits.read_at_a_time, habits.between_reads_us, habits.delay_us) == (0.0, 0, 0)
    assert habits.share_read == 1.0


def test_reads_are_a_window_of_eight():
    habits = Habits()
    for number in range(20):
        habits.read(number * HOUR, 100 if number < 12 else 4)
    assert habits.read_at_a_time == 4


def test_two_reads_a_day_are_eight_waking_hours_apart():
    habits = Habits()
    for number in range(9):
        habits.read(number * 12 * HOUR, 1)
    assert habits.between_reads_us == pytest.approx(8.25 * HOUR)


def test_the_share_that_is_read():
    habits = Habits()
    for hour in range(200):
        habits.arrived(hour * HOUR)
        if hour % 10 == 0:
            habits.read(hour * HOUR, 2)
    assert habits.share_read == pytest.approx(0.2)


def test_more_reads_than_arrivals_and_reads_at_one_moment_are_all():
    habits = Habits()
    for hour in range(5):
        habits.read(hour * HOUR, 10)
        habits.arrived(hour * HOUR)
    assert habits.share_read == 1.0
    at_once = Habits()
    for _ in range(3):
        at_once.read(HOUR, 1)
        at_once.arrived(HOUR)
    assert at_once.share_read == 1.0


def test_a_delay_covers_nine_of_ten_falls_once_some_are_known():
    habits = Habits()
    for minutes in (1, 2, 3):
        habits.fell(minutes)
    assert habits.delay_us == 0
    for minutes in range(4, 101):
        habits.fell(minutes)
    assert habits.delay_us == 94  # of the last 64: 37 to 100


def test_memory_is_bounded():
    habits = Habits()
    for number in range(1000):
        habits.read(number, 1)
        habits.arrived(number)
        habits.fell(number)
    assert sum(map(len, vars(habits).values())) <= 8 + 8 + 64 + 64


def fill(answer, limit=16):
    room = limit - len(answer.device)
    return answer.waiting[:room] if room > 0 else ()


def ruled(rule):
    return Forwarding("rule", rule=rule)


def nothing(message):
    pass


@pytest.mark.parametrize("outage", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("expiration", [None, 20_000.0])
def test_rules_that_do_what_a_policy_does(outage, expiration):
    same = {"outage": outage, "expiration": expiration, "threshold": 0.2, "days": 20, "seed": 4}
    buffer, on_demand = (simulate(policy=kind, prefetch_limit=16, **same) for kind in ("buffer", "on-demand"))
    assert simulate(policy=ruled(fill), **same).outcome == buffer.outcome
    everything = simulate(policy=ruled(lambda answer: answer.waiting), **same)
    assert everything.outcome == everything.online
    assert simulate(policy=ruled(lambda answer: []), **same).outcome == on_demand.outcome


def test_what_a_rule_is_told():
    told_all = []
    spool = Spool(0.25, ruled(lambda answer: told_all.append(answer) or ()), nothing, nothing)
    spool.network(0, is_up=True)
    spool.notification(1_000_000, "low", 0.2)
    spool.notification(2_000_000, "good", 0.5, 9_000_000)
    spool.notification(3_000_000, "best", 0.75)
    answer = told_all[-1]
    assert (answer.now_s, answer.threshold, answer.device) == (3.0, 0.25, ())
    assert answer.waiting == (Item("best", 0.75, 3.0, math.inf), Item("good", 0.5, 2.0, 9.0))
    assert (answer.read_at_a_time, answer.between_reads_s) == (0.0, 0.0)
    spool.read(4_000_000, 1)
    spool.read(8_000_000, 1)
    assert told_all[-1].read_at_a_time == 1.0
    assert told_all[-1].between_reads_s == pytest.approx(4 * 16.5 / 24)
    assert told_all[-1].waiting == ()


def test_a_rule_is_asked_only_while_the_link_is_up():
    asked = []
    spool = Spool(0.0, ruled(lambda answer: asked.append(answer.now_s) or ()), nothing, nothing)
    spool.notification(1_000_000, 1, 0.5)
    assert asked == []
    spool.network(2_000_000, is_up=True)
    spool.network(3_000_000, is_up=False)
    spool.notification(4_000_000, 2, 0.5)
    assert asked == [2.0]
