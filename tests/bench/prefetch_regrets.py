"""Regret of the settings that `prefetch_sizing` recommends: `python tests/bench/prefetch_regrets.py [OUTAGE]`.

A setting is recommended on a generated log of 30 days; its cost, in wasted messages a day, is that on a fresh
log of 400 days of the same process, and its regret how much more that is than the cost of the best setting
there. Beside it stands the setting that costs least on the days for choosing, which a simpler one replaces
unless it surely costs less.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import pandas as pd

from mudkit.report.choosing import Setting, pays, pick_days, prefer_simpler, search_setting
from mudkit.report.prefetch_events import Outages, read_events
from mudkit.report.schemas import TEMPLATES
from mudkit.systems.lasthop import Prices
from mudkit.systems.lasthop.study.sizing import score_policies

SEEDS = range(100, 120)
LIMITS = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, math.inf)
DEFAULTS = {name: field.default for name, field in TEMPLATES["prefetch_sizing"].model_fields.items()}
PRICES = Prices(*(DEFAULTS[f"price_{name}"] for name in ("wasted", "lost", "empty_read", "delay_hour")))


def regret_of(seed: int, outages: Outages) -> dict[str, Any]:
    """Return the recommended setting of a log, and the regrets of it and of the cheapest one."""
    names = ("arrivals_per_day", "reads_per_day")
    example = {name: DEFAULTS[name] for name in names} | {"expiration_h": 48.0, "days": 30, "seed": seed}
    played = {"max": DEFAULTS["max_at_a_time"], "threshold": 0.0}
    drawn: dict[str, Any] = {"tz": "UTC", "assumed": outages}
    _, chosen_on, scored_on = read_events("", "", "", example=example, draws=3, **drawn)
    searched, _ = search_setting(chosen_on, [PRICES], played, pick_days(chosen_on[0], "odd"))
    sized = searched.at(PRICES, threshold_s=None if pays(chosen_on, searched, played) else 0.0)
    recommended, least = (
        prefer_simpler(chosen_on, scored_on, sized, played),
        Setting(sized.limit, sized.threshold_s),
    )
    longer = example | {"days": 400, "seed": 10_000 + seed}
    _, fresh, _ = read_events("", "", "", example=longer, draws=1, **drawn)
    thresholds_s = {0.0, least.threshold_s, recommended.threshold_s}
    tried = [recommended, least, *(Setting(limit, one) for limit in LIMITS for one in thresholds_s)]
    policies = {str(number): setting.policy for number, setting in enumerate(tried)}
    cost = score_policies(fresh, policies, prices=PRICES, **played)["cost_per_day"]
    return {
        "seed": seed,
        "recommended": recommended.name,
        "regret": cost.iloc[0] - cost.min(),
        "cheapest": least.name,
        "cheapest_regret": cost.iloc[1] - cost.min(),
    }


def main() -> None:
    """Print the table and its summary."""
    outages = Outages(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5, per_day=DEFAULTS["outages_per_day"])
    table = pd.DataFrame([regret_of(seed, outages) for seed in SEEDS])
    print(table.to_string(float_format="{:.2f}".format, index=False))
    print(table[["regret", "cheapest_regret"]].agg(["mean", "max"]).to_string(float_format="{:.2f}".format))


if __name__ == "__main__":
    main()
