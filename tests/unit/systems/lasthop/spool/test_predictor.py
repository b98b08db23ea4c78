"""Prediction of reads: hours of the day, reads without a link, and what is prefetched for them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from mudkit.errors import ParameterError
from mudkit.systems.lasthop import Forwarding, simulate
from mudkit.systems.lasthop.spool.predictor import Observed, Predictor
from mudkit.systems.lasthop.spool.served import ServedSpool

H = 3_600_000_000
DAY = 24 * H


def observe_days(*reads, days=14):
    """Return a predictor that has observed reads at some hours of each day: (hour, has a link)."""
    predictor = Predictor()
    predictor.begin(0)
    for day in range(days):
        for hour, has_link in reads:
            predictor.record_read(day * DAY + round(hour * H), has_link=has_link)
    return predictor


def test_message_is_prefetched_if_it_lasts_until_the_hour_of_the_reads():
    """Last hop 4.3: what expires before the user reads is wasted; here she reads at noon, without a link."""
    predictor = observe_days(*[(12.25, False), (12.5, False), (12.75, False)])
    morning, afternoon = 20 * DAY + 8 * H, 20 * DAY + 14 * H
    assert predictor.is_worth_prefetching(morning, morning + 5 * H)
    assert not predictor.is_worth_prefetching(morning, morning + 4 * H)
    assert not predictor.is_worth_prefetching(afternoon, afternoon + 5 * H)
    assert predictor.is_worth_prefetching(afternoon, afternoon + 23 * H)


def test_nothing_that_expires_is_prefetched_for_reads_that_all_have_a_link():
    """Last hop 4.1: with a link the server sends what is read at that moment."""
    predictor = observe_days((12, True))
    assert not predictor.is_worth_prefetching(20 * DAY, 30 * DAY)
    assert Predictor().is_worth_prefetching(0, 1), "no read is known"


def test_short_lived_messages_need_more_reads_without_a_link():
    """Prefetching avoids p * d lost messages and costs 1 - p wasted ones, each with 0.8 of the weight."""
    at_us = 20 * DAY + 11.5 * H
    for unlinked in range(4):
        reads = [(12 + number / 4, number >= unlinked) for number in range(4)]
        predictor = observe_days(*reads)
        chance = 1.0 - math.exp(-predictor._expected_reads(round(at_us), round(at_us + H)))
        assert 0.8 < chance < 0.9, "two of four reads a day are expected in that half hour"
        is_worth = chance * unlinked / 4 >= 0.8 * (1.0 - chance)
        assert predictor.is_worth_prefetching(round(at_us), round(at_us + H)) == is_worth


def test_device_outlasts_the_reads_of_outages():
    predictor = Predictor()
    assert predictor.count_reads_to_outlast() == 1.0
    for reads in (1, 0, 3, 0):
        for _ in range(reads):
            predictor.record_read(H, has_link=False)
        predictor.end_outage()
    assert predictor.count_reads_to_outlast() == 1.0 + 2.0 + 2 * 1.0, "mean 2, standard deviation 1"


@given(
    st.lists(st.integers(0, 400), min_size=1, max_size=20).map(sorted),
    st.integers(0, 100 * H),
    st.integers(0, 100 * H),
)
def test_expected_reads_are_those_of_the_hours_between_two_times(hours, now_us, length_us):
    predictor = Predictor()
    predictor.begin(0)
    for hour in hours:
        predictor.record_read(hour * H + H // 2, has_link=True)
    seen = predictor.observed
    minutes = range(now_us // 60_000_000, (now_us + length_us) // 60_000_000)
    expected = sum(seen.reads[minute // 60 % 24] for minute in minutes) / 60 / (seen.observed_us / DAY)
    got = predictor._expected_reads(now_us, now_us + length_us)
    assert got == pytest.approx(expected, abs=2 * max(seen.reads) / 60 / (seen.observed_us / DAY) + 1e-9)


def test_old_reads_count_less_and_memory_is_bounded():
    predictor = observe_days((8, False), days=200)
    before_us = 200 * DAY
    for day in range(60):
        predictor.record_read(before_us + day * DAY + 20 * H, has_link=False)
        predictor.end_outage()
    reads = predictor.observed.reads
    assert reads[8] < 0.1 * reads[20]
    for _ in range(500):
        predictor.record_read(before_us + 70 * DAY, has_link=False)
        predictor.end_outage()
    assert len(predictor.observed.reads_of_outages) == 128


def test_observed_reads_are_restored():
    predictor = observe_days((8, False), (9, True))
    predictor.end_outage()
    stored = json.decode(json.encode(predictor.observed), type=Observed)
    assert Predictor(stored).observed == predictor.observed
    again = Predictor(stored)
    assert again.count_reads_to_outlast() == predictor.count_reads_to_outlast()


@pytest.mark.parametrize("settings", [{"prefetch_limit": 8}, {"expiration_threshold_s": 60.0}])
def test_settings_that_are_predicted_are_refused(settings):
    with pytest.raises(ParameterError, match="finds this itself"):
        Forwarding("predict", **settings)


def test_spool_holds_back_what_will_expire_unread_and_fills_the_device_for_an_outage():
    forwarded = []
    spool = ServedSpool(
        0.0,
        Forwarding("predict"),
        lambda message: forwarded.append(message.identity),
        lambda message: None,
        lambda message: None,
    )
    spool.network(0, is_up=True)
    for day in range(10):
        spool.network(day * DAY + H, is_up=False)
        spool.notification(day * DAY + 2 * H, day, 0.5)
        spool.read_offline(day * DAY + 12 * H, [day - 1], 3)
        spool.read_offline(day * DAY + 12 * H + H // 2, [], 3)
        spool.network(day * DAY + 13 * H, is_up=True)
    spool.notification(10 * DAY + 14 * H, "before noon", 0.9, 10 * DAY + 20 * H)
    spool.notification(10 * DAY + 14 * H, "after noon", 0.8, 11 * DAY + 14 * H)
    assert "before noon" not in forwarded
    assert "after noon" in forwarded
    assert spool.prefetch_limit == spool.habits.read_at_a_time * 3


@pytest.mark.parametrize("outages_per_day", [1, 12])
@pytest.mark.parametrize("user_frequency", [1, 4])
def test_predicted_limit_is_nearly_as_good_as_the_best_fixed_one(outages_per_day, user_frequency):
    """Last hop 4.2: within three points of waste and loss together."""
    settings = {"outage": 0.9, "outages_per_day": outages_per_day, "user_frequency": user_frequency}
    settings |= {"days": 120, "seed": 3}

    def cost(policy):
        run = simulate(policy=policy, **settings)
        return run.waste + run.loss

    assert cost("predict") < min(cost(Forwarding("buffer", 2**power)) for power in range(2, 10)) + 0.03


def test_prediction_beats_every_fixed_expiration_threshold_where_none_is_good():
    """Last hop 4.3, Figure 6: at 4.2 hours waste or loss is large at each threshold."""
    settings = {"outage": 0.9, "max": None, "expiration": 4.2 * 3600, "days": 180, "seed": 1}

    def worse(policy):
        run = simulate(policy=policy, **settings)
        return max(run.waste, run.loss)

    thresholds = [Forwarding("buffer", 1_000_000, hours * 3600.0) for hours in (4, 6, 6.5, 7, 7.5, 8, 10)]
    assert worse("predict") < min(map(worse, thresholds))
