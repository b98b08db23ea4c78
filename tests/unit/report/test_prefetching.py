"""Report prefetch_sizing: arrivals, reads, links, and the recommended prefetch limit."""

from __future__ import annotations

import numpy as np
import pytest

from mudkit.report.prefetching import SizingStudy, read_events, study_sizing
from mudkit.sources import Outages
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.sizing import add_outages

HOUR = 3_600_000_000
EVENTS = drawn_from(
    np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], expires_us=[FOREVER_US] * 24 + [100 * HOUR] * 25
)
EXAMPLE = {"arrivals_per_day": 32.0, "reads_per_day": 2.0, "expiration_h": 48.0, "days": 8, "seed": 0}


def study_runs(runs, *, assumed=None, max_at_a_time=8, weight=1.0, is_example=False) -> SizingStudy:
    return study_sizing(
        "log.csv",
        runs,
        assumed,
        is_example=is_example,
        max_at_a_time=max_at_a_time,
        threshold=0.0,
        loss_weight=weight,
    )


@pytest.fixture(scope="module")
def example():
    assumed = Outages(0.5)
    name, runs = read_events("", "", "", tz="UTC", example=EXAMPLE, assumed=assumed, seeds=range(2))
    assert name == "a generated example"
    return study_runs(runs, assumed=assumed, is_example=True)


def test_first_screen_describes_the_input():
    recorded = drawn_from(EVENTS.arrivals_us, EVENTS.reads_us, outages_us=[[10 * HOUR, 20 * HOUR]])
    study = study_runs([recorded])
    assert study.first_screen().source == (
        "log.csv · 2 days · 49 messages · 2 reads · no link for 21 % of the time"
    )
    warnings = " ".join(study.first_screen().warnings)
    assert "no more than 33 % of the messages can be read" in warnings
    assert "only 2 reads" in warnings
    assert "last 2 days" in warnings
    assert "can be read" not in " ".join(study_runs([recorded], max_at_a_time=25).first_screen().warnings)


def test_down_share_is_clipped_to_the_events():
    assert study_runs([drawn_from([0, 100], [50], outages_us=[[10, 20], [70, 85]])]).down_share == 0.25
    assert study_runs([drawn_from([0, 100], [50], outages_us=[[85, 300]])]).down_share == pytest.approx(0.15)


def test_first_screen_matches_the_table(example):
    table, screen = example.sized.table, example.first_screen()
    best = table.loc[table["cost"].idxmin()]
    assert example.sized.limit == best["limit"]
    assert screen.tiles[0][0] == f"{best['limit']:,.0f} messages"
    assert f"up to {best['limit']:,.0f} messages" in screen.headline
    recommended = example.row("recommended")
    assert recommended["waste"] == pytest.approx(best["waste"])
    assert recommended["loss"] == pytest.approx(best["loss"])
    assert "generated" in screen.warnings[0]
    assert "no link for 50 %" in screen.assumption


def test_limits_near_the_best_are_tried(example):
    limits = example.limit_table()["limit"].tolist()
    best = limits.index(example.sized.limit)
    assert limits[best + 1] / limits[best] < 1.5
    near = example.near(example.limit_table())
    assert example.sized.limit in near["limit"].tolist()
    assert len(near) <= 9


def test_intervals_stay_within_zero_and_one(example):
    for table in (example.limit_table(), example.threshold_table(), example.policy_table()):
        ends = table[["waste_low", "waste_high", "loss_low", "loss_high"]].to_numpy()
        assert np.nanmin(ends) >= 0
        assert np.nanmax(ends) <= 1


def test_optimal_limit_at_the_edge_extends_the_range():
    """Send 5,000 messages while the link is up; a single read long after the link went down takes all."""
    arrivals = np.arange(5000) * 1_000_000
    events = drawn_from(arrivals, [9000 * 1_000_000], outages_us=[[5000 * 1_000_000, 9500 * 1_000_000]])
    study = study_runs([events], max_at_a_time=5000, weight=10.0)
    assert study.extended == ["limits"]
    assert study.sized.limit > 4096
    assert study.sized.best["loss"] == 0.0
    assert any("edge of the limits" in warning for warning in study.first_screen().warnings)


def test_optimal_threshold_at_the_edge_extends_the_range():
    """Build messages of which half expire after 5 days, before the next read; the others last long."""
    days = np.arange(40)
    lasts = np.where(days % 2, 5 * 24 * HOUR, 200 * 24 * HOUR)
    events = drawn_from(
        days * 24 * HOUR,
        [day * 24 * HOUR + 1 for day in (20, 39)],
        expires_us=days * 24 * HOUR + lasts,
        outages_us=[[(day - 1) * 24 * HOUR + 2, day * 24 * HOUR + 10] for day in (20, 39)],
    )
    study = study_runs([events], max_at_a_time=100)
    assert study.extended == ["thresholds"]
    assert study.sized.threshold_s == 8 * 86_400.0, "twice as much is no cheaper"


def test_nothing_is_prefetched_without_outages():
    study = study_runs([EVENTS])
    assert study.first_screen().headline == "Prefetch nothing: send messages when they are asked for."
    assert study.first_screen().tiles[0][0] == "none"
    assert not study.has_threshold
    assert "no threshold matters" in study.threshold_answer().title
    assert study.limit_answer().title == "Whatever is prefetched costs more than it saves"


def test_total_outage_wastes_and_loses_nothing():
    """Assume an outage at all times: nothing is sent or could be read, so nothing is wasted or lost."""
    assumed = Outages(1.0)
    study = study_runs(add_outages(EVENTS, assumed, [1]), assumed=assumed)
    assert (study.sized.limit, study.sized.best["waste"], study.sized.best["loss"]) == (0, 0.0, 0.0)
    assert "no link for 100 % of the time" in study.first_screen().source


def test_threshold_is_absent_without_expirations():
    events = drawn_from(np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], outages_us=[[9 * HOUR, 21 * HOUR]])
    assert "Nothing expires" in study_runs([events]).threshold_answer().title


def test_weights_and_policies_have_answers(example):
    assert "lost message is worth" in example.weights_answer().title
    assert "recommended setting costs" in example.policies_answer().title


def test_answers_say_that_no_limit_matters():
    """Read each message an hour after its arrival, with the link always up."""
    hours = np.arange(40) * HOUR
    study = study_runs([drawn_from(hours[::2], hours[1::2] + 1)])
    assert study.first_screen().reason.endswith("Any other limit does as well.")
    assert study.limit_answer().title.startswith("No limit is better than another")
    assert study.policies_answer().title == "All policies do equally well"
