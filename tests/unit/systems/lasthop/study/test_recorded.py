"""Recorded links and reads in a run, and how many unlocks are reads."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mudkit.errors import InputMissing, ParameterError, TraceFormatError
from mudkit.sources.streams import Stream
from mudkit.systems.lasthop import Expiration, Forwarding
from mudkit.systems.lasthop.study.comparing import compare
from mudkit.systems.lasthop.study.recorded import (
    Condition,
    Link,
    Unlocks,
    conditions,
    drawer_ages_s,
    read_share,
)
from mudkit.systems.lasthop.study.scenario import Scenario
from mudkit.trace import load_links, load_unlocks
from mudkit.trace.schema import LINKS, timestamps

S = 1_000_000
DAY_US = 86_400 * S
T0_S = 1_700_000_000 // 86_400 * 86_400


def links(up):
    """A link whose state in each second is given."""
    count = len(up)
    return pa.table(
        {
            "device": pa.array(["car"] * count),
            "ts": timestamps((T0_S + np.arange(count)) * S),
            "up": pa.array([bool(each) for each in up]),
            "down_kbps": pa.nulls(count, pa.float64()),
            "up_kbps": pa.nulls(count, pa.float64()),
            "latency_ms": pa.nulls(count, pa.float64()),
        },
        schema=LINKS,
    )


def states(link, seed, seconds):
    """Say for each second of a run whether the link is up, half a second later."""
    switches_us, starts_up = link.switches_us(seed, seconds * S)
    assert (np.diff(switches_us) > 0).all()
    middle = np.arange(seconds) * S + S // 2
    return (np.searchsorted(switches_us, middle, side="right") % 2 == 0) == starts_up


@pytest.mark.parametrize("up", [[1, 1, 0, 1, 0], [1, 0, 0, 1, 1], [0, 1, 1, 0], [0, 0, 1], [1, 0], [0, 1]])
@pytest.mark.parametrize("seed", range(4))
def test_a_link_goes_round_and_round(up, seed):
    link, seconds = Link(links(up), "car"), 40
    offset_us = int(Stream(seed, "lasthop recorded link").uniform(0, 0, 0.0, len(up) * S))
    expected = [bool(up[(offset_us + at * S + S // 2) // S % len(up)]) for at in range(seconds)]
    assert states(link, seed, seconds).tolist() == expected


@pytest.mark.parametrize("up", [1, 0])
def test_a_link_that_never_changes(up):
    switches_us, starts_up = Link(links([up] * 5), "car").switches_us(0, DAY_US)
    assert (switches_us.size, starts_up) == (0, bool(up))


def test_generated_outages_are_as_many_and_as_long():
    alike = Link(links([1, 1, 0, 1, 1, 0, 0, 1, 1, 1]), "car").alike()
    assert alike.share == pytest.approx(0.3)
    assert alike.per_day == pytest.approx(2 * 86_400 / 10)
    assert Link(links([1] * 4), "car").alike().share == 0.0
    assert Link(links([0] * 4), "car").alike().share == 1.0


LOG_US = np.array([(T0_S + 86_400 * day + 3600 * hour) * S for day in range(12) for hour in (7, 12, 18, 23)])


def test_unlocks_are_reads_at_their_time_of_day():
    reads_us = Unlocks(LOG_US).reads_us(3, 30 * DAY_US)
    assert len(reads_us) == 30 * 4
    assert set((reads_us % DAY_US // (3600 * S)).tolist()) == {7, 12, 18, 23}
    half = Unlocks(LOG_US, 0.5).reads_us(3, 30 * DAY_US)
    assert set(half) < set(reads_us)
    assert 40 <= len(half) <= 80
    assert Unlocks(LOG_US, 0.5).per_day == 2.0


def test_what_is_not_recorded_is_that_of_the_scenario():
    scenario = Scenario(days=20)
    plain, drawn = (
        scenario.draw(5),
        Condition(scenario, Link(links([1, 0] * 500), "car"), Unlocks(LOG_US)).draw(5),
    )
    assert (drawn.arrivals_us == plain.arrivals_us).all()
    assert (drawn.ranks == plain.ranks).all()
    assert len(drawn.reads_us) == 80
    assert len(drawn.switches_us) > len(plain.switches_us)


def test_conditions_differ_in_one_thing_each():
    made = conditions(Link(links([1, 1, 0, 0] * 1000), "car"), Unlocks(LOG_US), Scenario(days=5))
    drawn = {name: each.draw(1) for name, each in made.items()}
    assert list(made) == ["generated", "recorded link", "recorded reads", "both recorded"]
    generated, both = drawn["generated"], drawn["both recorded"]
    assert (drawn["recorded link"].reads_us == generated.reads_us).all()
    assert (drawn["recorded reads"].switches_us == generated.switches_us).all()
    assert (drawn["recorded link"].switches_us == both.switches_us).all()
    assert (drawn["recorded reads"].reads_us == both.reads_us).all()
    assert made["generated"].scenario.outages.share == pytest.approx(0.5)
    assert made["generated"].scenario.user_frequency == 4.0


# -- how many unlocks are reads


def aged(reads_us, quantile):
    """Give the quantile of ages in snapshots: messages each minute, snapshots each minute."""
    minutes = np.arange(reads_us[0], reads_us[-1], 60 * S)
    since = minutes - reads_us[np.searchsorted(reads_us, minutes, side="right") - 1]
    counts = np.bincount(np.concatenate([np.arange(int(each // (60 * S)) + 1) for each in since]))
    return 30 + 60 * float(np.searchsorted(np.cumsum(counts) / counts.sum(), quantile))


def test_the_share_gives_the_age_that_was_asked_for():
    rng = np.random.default_rng(1)
    unlocks_us = np.cumsum(rng.exponential(1200 * S, 3000)).astype(np.int64)
    _, all_s = read_share(unlocks_us, 0.0)
    assert all_s == pytest.approx(aged(unlocks_us, 0.5), rel=0.05)
    share, age_s = read_share(unlocks_us, 3 * all_s)
    assert age_s == pytest.approx(3 * all_s, rel=0.05)
    assert share == pytest.approx(1 / 3, rel=0.1), "with a third of the reads things are three times as old"
    chosen = unlocks_us[Stream(0, "lasthop read of unlock").uniform(0, np.arange(3000)) < share]
    assert age_s == pytest.approx(aged(chosen, 0.5), rel=0.05)


def test_younger_than_all_unlocks_leave_it_cannot_be():
    share, age_s = read_share(LOG_US, 60.0)
    assert share == pytest.approx(1.0)
    assert age_s > 3600


@pytest.mark.parametrize(
    "given", [([1, 1, 2], 5.0, 0.5), ([1, 2, 3, 4], -1.0, 0.5), ([1, 2, 3, 4], 5.0, 1.0)]
)
def test_shares_that_cannot_be_found(given):
    with pytest.raises(ParameterError):
        read_share(*given)
    with pytest.raises(ParameterError, match="share"):
        Unlocks(LOG_US, 1.5)


AGGREGATES = """## 11_notification_age cell 8
25%  1 day 1.0
## 11_notification_age cell 10
                          Age      PostTime    AgeSeconds
count                40836340  4.083634e+07  4.083634e+07
25%    0 days 00:14:44.746000  1.541274e+12  8.847460e+02
50%    0 days 01:17:58.022000  1.543184e+12  4.678022e+03
75%    0 days 05:46:22.710250  1.545342e+12  20782.71

## 11_notification_age cell 13
"""


def test_ages_of_drawers_are_read(tmp_path):
    file = tmp_path / "aggregates.txt"
    file.write_text(AGGREGATES)
    assert drawer_ages_s(file) == pytest.approx({0.25: 884.746, 0.5: 4678.022, 0.75: 20782.71})
    file.write_text(AGGREGATES.replace("cell 10", "cell 9"))
    with pytest.raises(TraceFormatError, match="0 quantiles"):
        drawer_ages_s(file)
    with pytest.raises(InputMissing):
        drawer_ages_s(tmp_path / "nothing")


# -- the recordings themselves


def test_recorded_conditions(driving_networks, phone_log, notification_drawers):
    """Bursts of unlocks and long nights make more expire than reads that are spread over the day do."""
    unlocks = load_unlocks(phone_log / "AwareScreen_1month.csv")
    ages_s = drawer_ages_s(notification_drawers / "aggregates.txt")
    share, age_s = read_share(unlocks.times_us, ages_s[0.75], 0.75)
    assert (share, age_s) == pytest.approx((1.0, 21_553), rel=1e-3), (
        "all unlocks: 21,553 s; drawers: 20,783 s"
    )
    link = Link(load_links(driving_networks), "mob-TCP")
    alike = link.alike()
    assert (alike.share, alike.per_day) == pytest.approx((0.1314, 225.4), rel=1e-3)
    scenario = Scenario(event_frequency=102, expiration=Expiration(3600.0), days=30)
    made = conditions(link, Unlocks(unlocks.times_us, share, 2.0), scenario)
    table = compare(
        made, {"buffer": Forwarding("buffer", 16), "on-demand": Forwarding("on-demand")}, seeds=range(3)
    )
    rows = table.set_index(["policy", "condition"])
    waste = rows.loc["buffer", "waste"]
    assert waste["both recorded"] > waste["generated"] + 0.05
    assert waste["recorded link"] == pytest.approx(waste["generated"], abs=0.02)
    loss = rows.loc["on-demand", "loss"]
    assert 0.01 < loss.min() < loss.max() < 0.13
