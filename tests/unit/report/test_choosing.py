"""Days on which a setting of prefetching is chosen and scored, and the prices that are tried."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from mudkit.report import choosing
from mudkit.report.choosing import (
    Setting,
    count_days,
    count_scored_days,
    pick_days,
    prefer_simpler,
    search_setting,
    vary_prices,
)
from mudkit.sources import Outages
from mudkit.systems.lasthop import Prices, Scenario
from mudkit.systems.lasthop.study.logs import drawn_from
from mudkit.systems.lasthop.study.sizing import LIMITS

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("hours", "days", "scored", "odd"),
    [(1, 1, 1, "all"), (60, 3, 3, "all"), (80, 4, 2, "odd"), (200, 9, 4, "odd")],
)
def test_short_logs_are_not_split(hours, days, scored, odd):
    drawn = drawn_from([0, HOUR_US], [hours * HOUR_US])
    assert (count_days(drawn), count_scored_days(drawn)) == (days, scored)
    assert pick_days(drawn, "odd") == odd


def test_each_price_is_halved_and_doubled():
    variants = vary_prices(Prices(wasted=1.0, lost=4.0, empty_read=0.0, delay_hour=0.5))
    assert len(variants) == 9
    assert variants["a lost message halved, 2"] == Prices(
        wasted=1.0, lost=2.0, empty_read=0.0, delay_hour=0.5
    )
    assert variants["an hour of delay doubled, 1"].delay_hour == 1.0
    assert variants["as assumed"].lost == 4.0


def test_limits_around_the_best_one_are_tried_too():
    """See :func:`search_setting`: they lie between the neighbours of the best one in the grid, which doubles."""
    drawn = Scenario(days=20, outages=Outages(0.5)).draw(1)
    sized, extended = search_setting([drawn], [Prices()], {"max": 8, "threshold": 0.0}, "all")
    further = sorted({*sized.table["limit"].tolist()} - {*LIMITS})
    best = max(limit for limit in LIMITS if limit < max(further))
    assert extended == []
    assert [round(limit / best, 3) for limit in further] == [0.625, 0.75, 0.875, 1.25, 1.5, 1.75]


CHOSEN, ON_DEMAND, AT_ONCE = Setting(8), Setting(0), Setting(math.inf)


@pytest.mark.parametrize(
    ("costs", "beaten", "best"),
    [
        ({ON_DEMAND: 3.0, AT_ONCE: 4.0}, [], ON_DEMAND),
        ({ON_DEMAND: 4.0, AT_ONCE: 3.0}, [], AT_ONCE),
        ({ON_DEMAND: 5.0, AT_ONCE: 6.0}, [], ON_DEMAND),
        ({ON_DEMAND: 5.1, AT_ONCE: 6.0}, [], AT_ONCE),
        ({ON_DEMAND: 3.0, AT_ONCE: 4.0}, [ON_DEMAND], AT_ONCE),
        ({ON_DEMAND: 3.0, AT_ONCE: 4.0}, [AT_ONCE], ON_DEMAND),
        ({ON_DEMAND: 3.0, AT_ONCE: 4.0}, [ON_DEMAND, AT_ONCE], CHOSEN),
    ],
)
def test_simpler_settings_are_preferred_unless_they_surely_cost_more(costs, beaten, best, monkeypatch):
    """See :func:`prefer_simpler`: costs are those of the days for choosing, and the days for scoring decide.

    The chosen setting costs 5 a day.
    """
    names = {setting.name: cost for setting, cost in costs.items()} | {"chosen": 5.0}

    def score_policies(runs, policies, *, days, **_):
        is_scored = (runs, days) == (["scored on"], "even")
        assert is_scored or (runs, days) == (["chosen on"], "odd")
        lows = {setting.name: 1.0 for setting in beaten} if is_scored else {}
        rows = [(name, -9.0 if is_scored else names[name], lows.get(name, -1.0)) for name in policies]
        return pd.DataFrame(rows, columns=["policy", "cost_per_day", "saved_per_day_low"])

    monkeypatch.setattr(choosing, "score_policies", score_policies)
    monkeypatch.setattr(choosing, "pick_days", lambda run, which: which)
    monkeypatch.setattr(choosing, "has_enough", lambda run: True)
    sized = SimpleNamespace(
        limit=8, threshold_s=0.0, prices=Prices(), table=pd.DataFrame({"limit": [8]}),
        at=lambda prices, min_limit: SimpleNamespace(threshold_s=0.0),
    )  # fmt: skip
    assert prefer_simpler(["chosen on"], ["scored on"], sized, {}) == best
