"""What the report prefetch_sizing says of arrivals, reads, links, and how much to prefetch."""

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


def study(runs, *, assumed=None, most=8, weight=1.0, is_example=False) -> SizingStudy:
    return study_sizing(
        "log.csv",
        runs,
        assumed,
        is_example=is_example,
        max_at_a_time=most,
        threshold=0.0,
        loss_weight=weight,
    )


@pytest.fixture(scope="module")
def example():
    assumed = Outages(0.5)
    name, runs = read_events("", "", "", tz="UTC", example=EXAMPLE, assumed=assumed, seeds=range(2))
    assert name == "a generated example"
    return study(runs, assumed=assumed, is_example=True)


def test_what_was_read_is_said():
    recorded = drawn_from(EVENTS.arrivals_us, EVENTS.reads_us, outages_us=[[10 * HOUR, 20 * HOUR]])
    found = study([recorded])
    assert found.first_screen().source == (
        "log.csv · 2 days · 49 messages · 2 reads · no link for 21 % of the time"
    )
    said = " ".join(found.first_screen().warnings)
    assert "no more than 33 % of the messages can be read" in said
    assert "only 2 reads" in said
    assert "last 2 days" in said
    assert "can be read" not in " ".join(study([recorded], most=25).first_screen().warnings)


def test_the_time_without_a_link_ends_with_the_events():
    assert study([drawn_from([0, 100], [50], outages_us=[[10, 20], [70, 85]])]).down_share == 0.25
    assert study([drawn_from([0, 100], [50], outages_us=[[85, 300]])]).down_share == pytest.approx(0.15)


def test_figures_are_those_of_the_table(example):
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


def test_limits_around_the_best_are_tried(example):
    limits = example.limit_table()["limit"].tolist()
    at = limits.index(example.sized.limit)
    assert limits[at + 1] / limits[at] < 1.5
    near = example.near(example.limit_table())
    assert example.sized.limit in near["limit"].tolist()
    assert len(near) <= 9


def test_intervals_never_leave_what_is_possible(example):
    for table in (example.limit_table(), example.threshold_table(), example.policy_table()):
        ends = table[["waste_low", "waste_high", "loss_low", "loss_high"]].to_numpy()
        assert np.nanmin(ends) >= 0
        assert np.nanmax(ends) <= 1


def test_an_optimum_at_the_edge_extends_the_range():
    """5,000 messages come while there is a link; all are read in one go, long after it went."""
    arrivals = np.arange(5000) * 1_000_000
    events = drawn_from(arrivals, [9000 * 1_000_000], outages_us=[[5000 * 1_000_000, 9500 * 1_000_000]])
    found = study([events], most=5000, weight=10.0)
    assert found.extended == ["limits"]
    assert found.sized.limit > 4096
    assert found.sized.best["loss"] == 0.0
    assert any("edge of the limits" in each for each in found.first_screen().warnings)


def test_a_threshold_at_the_edge_extends_the_range():
    """Half of the messages last 5 days and are over before the next read; the others last long."""
    days = np.arange(40)
    lasts = np.where(days % 2, 5 * 24 * HOUR, 200 * 24 * HOUR)
    events = drawn_from(
        days * 24 * HOUR,
        [day * 24 * HOUR + 1 for day in (20, 39)],
        expires_us=days * 24 * HOUR + lasts,
        outages_us=[[(day - 1) * 24 * HOUR + 2, day * 24 * HOUR + 10] for day in (20, 39)],
    )
    found = study([events], most=100)
    assert found.extended == ["thresholds"]
    assert found.sized.threshold_s == 8 * 86_400.0, "twice as much is no cheaper"


def test_with_a_link_at_any_time_nothing_is_prefetched():
    found = study([EVENTS])
    assert found.first_screen().headline == "Prefetch nothing: send messages when they are asked for."
    assert found.first_screen().tiles[0][0] == "none"
    assert not found.has_threshold
    assert "no threshold matters" in found.threshold_answer().title
    assert found.limit_answer().title == "Whatever is prefetched costs more than it saves"


def test_a_total_outage_has_a_meaning():
    """Nothing goes and nothing could have been read: nothing is wasted, lost, or worth prefetching."""
    assumed = Outages(1.0)
    found = study(add_outages(EVENTS, assumed, [1]), assumed=assumed)
    assert (found.sized.limit, found.sized.best["waste"], found.sized.best["loss"]) == (0, 0.0, 0.0)
    assert "no link for 100 % of the time" in found.first_screen().source


def test_where_nothing_expires_there_is_no_threshold():
    never = drawn_from(np.arange(49) * HOUR, [10 * HOUR, 20 * HOUR], outages_us=[[9 * HOUR, 21 * HOUR]])
    assert "Nothing expires" in study([never]).threshold_answer().title


def test_weights_and_policies_have_answers(example):
    assert "lost message is worth" in example.weights_answer().title
    assert "recommended setting costs" in example.policies_answer().title


def test_where_no_limit_matters_it_is_said():
    """Each message is read an hour after it came, and there is a link at any time."""
    hours = np.arange(40) * HOUR
    found = study([drawn_from(hours[::2], hours[1::2] + 1)])
    assert found.first_screen().reason.endswith("Any other limit does as well.")
    assert found.limit_answer().title.startswith("No limit is better than another")
    assert found.policies_answer().title == "All policies do equally well"
