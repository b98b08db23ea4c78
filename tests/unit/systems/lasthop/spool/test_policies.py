"""Forwarding policies: settings, learnt habits, and rules."""

from __future__ import annotations

import math
from functools import partial

import pytest

from mudkit.errors import ParameterError
from mudkit.sources.outages import Outages
from mudkit.systems.lasthop import (
    LEARNT,
    Expiration,
    Forwarding,
    Item,
    PaperSpool,
    Scenario,
    Spool,
    Subscription,
    lifelines,
    message_lifecycles,
    play,
    simulate,
)
from mudkit.systems.lasthop.spool.policies import Habits
from mudkit.systems.lasthop.spool.ranked import FOREVER_US


@pytest.mark.parametrize(
    ("settings", "result"),
    [
        ({"kind": "online"}, "'online'"),
        ({"prefetch_limit": -1}, "-1"),
        ({"prefetch_limit": 2.5}, "2.5"),
        ({"prefetch_limit": "taught"}, "taught"),
        ({"expiration_threshold_s": -1.0}, "-1"),
        ({"expiration_threshold_s": True}, "True"),
        ({"delay_s": "soon"}, "soon"),
    ],
)
def test_settings_that_are_none(settings, result):
    with pytest.raises(ParameterError, match=result):
        Forwarding(**settings)


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


DAY_US = 86_400_000_000


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


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        (lambda answer: [*answer.waiting, *answer.waiting], "is not waiting"),
        (lambda answer: [*answer.device, *answer.waiting[:1]], "is not waiting"),
        (lambda answer: [each.identity for each in answer.waiting], "is not waiting"),
        (lambda answer: None, "returns the items to forward"),
    ],
)
def test_a_rule_cannot_choose_what_does_not_wait(rule, answer):
    with pytest.raises(ParameterError, match=answer):
        simulate(policy=ruled(rule), days=3)


@pytest.mark.parametrize(
    "settings", [{"kind": "rule"}, {"kind": "rule", "rule": 3}, {"kind": "buffer", "rule": fill}]
)
def test_a_rule_and_its_kind_go_together(settings):
    with pytest.raises(ParameterError, match="of the kind 'rule' has a rule"):
        Forwarding(**settings)


def test_a_server_keeps_no_rule():
    with pytest.raises(ParameterError, match="cannot store a rule"):
        Subscription("news", policy=ruled(fill))


def test_the_printed_code_loses_most_where_outages_are_long():
    """Nobody tells the server what was read without a network; with a network always, nothing is lost."""
    lost = {}
    for share in (0.0, 0.9):
        drawn = Scenario(outages=Outages(share), days=60).draw(1)
        ways = {
            "best": partial(Spool, 0.0, Forwarding("on-line")),
            "mended": partial(Spool, 0.0, Forwarding("buffer", 16)),
            "printed": partial(PaperSpool, 0.0, 16),
        }
        read = {name: set(play(drawn, begin, 8).read_ids) for name, begin in ways.items()}
        lost |= {(name, share): len(read["best"] - read[name]) / len(read["best"]) for name in ways}
    assert lost["printed", 0.0] == 0.0
    assert lost["mended", 0.9] < 0.1
    assert 0.7 < lost["printed", 0.9] < 0.9


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_lives_are_what_was_played(share, seed):
    drawn = Scenario(outages=Outages(share, per_day=2.0), expiration=Expiration(50_000.0), days=12).draw(seed)
    begin = partial(Spool, 0.1, Forwarding("buffer", 16))
    outcome, table = play(drawn, begin, 8), message_lifecycles(drawn, begin, 8)
    forwarded, read = table[table["forwarded_us"] >= 0], table[table["read_us"] >= 0]
    assert len(table) == len(drawn.arrivals_us)
    assert set(forwarded["message"]) == set(outcome.forwarded_ids)
    assert set(read["message"]) == set(outcome.read_ids)
    for name, identities in (("forwarded_us", outcome.forwarded_ids), ("read_us", outcome.read_ids)):
        times_us = [table[name][each] for each in identities]
        assert times_us == sorted(times_us)
    assert set(read["read_us"]) <= set(drawn.reads_us.tolist())
    assert (read["read_us"] >= read["forwarded_us"]).all()
    assert (read["read_us"] < read["expires_us"]).all()
    assert (forwarded["forwarded_us"] >= forwarded["came_us"]).all()
    assert (forwarded["forwarded_us"] < forwarded["expires_us"]).all()
    assert share == 1.0 or read.groupby("read_us").size().max() <= 8


def test_a_message_that_never_expires_says_so():
    table = message_lifecycles(Scenario(days=2).draw(0), partial(Spool, 0.0, Forwarding("on-demand")), 8)
    assert set(table["expires_us"]) == {FOREVER_US}
    assert (table["forwarded_us"] == table["read_us"]).all()
    assert table["came_us"].max() < 2 * DAY_US


def test_lifelines_count_waste_and_loss_on_the_same_events():
    policies = {"on-line": Forwarding("on-line"), "on demand": Forwarding("on-demand")}
    lives = lifelines(Scenario(8.0, 2.0, Outages(0.6, 4.0), days=3), policies, max=2, seed=1)
    table = lives.table().set_index("policy")
    assert list(table.columns) == ["forwarded", "read", "waste", "loss"]
    assert table.loc["on-line", "loss"] == table.loc["on demand", "waste"] == 0
    assert table.loc["on-line", "waste"] == pytest.approx(10 / 22)
    assert table.loc["on demand", "loss"] == pytest.approx(8 / 12)
    assert "on demand" in lives._repr_html_()
