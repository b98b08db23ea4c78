"""Days on which a setting of prefetching is chosen and scored, and the prices that are tried."""

from __future__ import annotations

import pytest

from mudkit.report.choosing import count_days, count_scored_days, pick_days, vary_prices
from mudkit.systems.lasthop import Prices
from mudkit.systems.lasthop.study.logs import drawn_from

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
