"""Numbers of the report cache_policy: measures of each policy, a grid of rules, the best with hindsight."""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.intervals import Interval
from mudkit.learning import FixedRule, RadioModel
from mudkit.learning.bound import fewest_sends, fewest_sends_by_stale
from mudkit.learning.costs import read_costs
from mudkit.learning.evaluate import READ_MEASURES, measures_by_read
from mudkit.learning.pairs import Pairs
from mudkit.learning.replay import SENT, replay
from mudkit.learning.search import Choice, Recommendation, replay_rules

RULE, HINDSIGHT = "fixed rule", "with hindsight"
_GRID_KM: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
_GRID_MINUTES: Final = (2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 60.0, 120.0)


def choose_with_hindsight(
    pairs: Pairs, is_stale: NDArray[np.bool_], max_stale: float
) -> tuple[float, NDArray[np.int64]]:
    """Return the largest share of fresh answers within the limit, and the pairs that serve them."""
    count = len(pairs.device)
    sends = fewest_sends_by_stale(pairs, is_stale, int(max_stale * count + 1e-9))
    fresh = count - sends - np.arange(len(sends))
    stale = int(np.argmax(fresh))
    return float(fresh[stale] / count), fewest_sends(pairs, is_stale, pairs.devices(), stale)


def stale_share(search: Recommendation, is_stale: NDArray[Any]) -> Interval:
    """Return a share of stale answers with the interval that the probability to miss the limit is from."""
    return intervals.clustered(is_stale, search.device, search.day, ahead=True, limits=(0.0, math.inf))


def compare_policies(search: Recommendation, fixed: Choice, hindsight: NDArray[np.int64]) -> pd.DataFrame:
    """Measure the policies by read: shares, data and energy, with their intervals; a row for each."""
    pairs, is_stale, costs, radio = search.pairs, search.is_stale, read_costs("latency"), RadioModel()
    rows: list[tuple[str, NDArray[np.bool_] | None]] = [
        (choice.family, choice.decisions) for choice in search.choices
    ]
    rows[1:1] = [(RULE, fixed.decisions)]
    table = []
    for kind, decisions in [*rows, (HINDSIGHT, None)]:
        served = hindsight if decisions is None else replay(pairs, decisions)
        values = measures_by_read(pairs, is_stale, served, costs, radio)
        columns = dict(zip(READ_MEASURES, values.T, strict=True))
        # A stale answer saves nothing: what it takes is what asking the server would have taken.
        billed = np.where(columns["stale_share"] > 0, SENT, served)
        taken = dict(
            zip(READ_MEASURES, measures_by_read(pairs, is_stale, billed, costs, radio).T, strict=True)
        )
        columns |= {name: taken[name] for name in ("messages", "bytes", "radio_mj")}
        columns["fresh_share"] = 1.0 - columns["sent_share"] - columns["stale_share"]
        columns["data_bytes"] = columns.pop("bytes")
        is_chosen = search.has_enough_reads and kind == search.chosen.family
        row: dict[str, Any] = {"kind": kind, "is_recommended": is_chosen}
        for column, of_reads in columns.items():
            is_share = column.endswith("_share") or column == "completeness"
            limits = (0.0, 1.0) if is_share else (0.0, math.inf)
            shown = (
                stale_share(search, of_reads)
                if column == "stale_share"
                else intervals.clustered(of_reads, search.device, search.day, ahead=True, limits=limits)
            )
            row |= {column: shown.value, f"{column}_low": shown.low, f"{column}_high": shown.high}
        if kind == "always ask":  # by definition
            row |= {name: math.nan for name in row if re.match("(.*_share|completeness)_(low|high)", name)}
        if decisions is None:  # what bounds fresh answers bounds nothing else
            ends = [name for name in row if name.endswith(("_low", "_high"))]
            row |= dict.fromkeys(set(ends) - {"fresh_share_low", "fresh_share_high"}, math.nan)
            row |= dict.fromkeys(("completeness", "data_bytes", "radio_mj"), math.nan)
        table.append(row)
    frame = pd.DataFrame(table)
    return frame.assign(policy=frame["kind"] + np.where(frame["is_recommended"], " (recommended)", ""))


def try_rules(search: Recommendation, rule: FixedRule) -> pd.DataFrame:
    """Replay some rules of distance and age on all reads, the best one and the fixed one among them."""
    best = search.choice("distance and age")
    framed = [rule, *([best.policy] if best is not None else [])]
    plain = [one for one in framed if isinstance(one, FixedRule) and not isinstance(one.minutes, tuple)]
    km = sorted({*_GRID_KM, *(one.km for one in plain)})
    longest = float(search.pairs.age_s.max(initial=60.0)) / 60
    minutes = sorted({*(age for age in _GRID_MINUTES if age <= longest), *(one.ages[0] for one in plain)})
    rules = [FixedRule(a, b) for a in km for b in minutes]
    sums = replay_rules(search.pairs, search.is_stale, rules)
    count = max(float(sums.reads.sum()), 1.0)
    fresh, stale = (values.sum(axis=0, dtype=np.float64) / count for values in (sums.fresh, sums.stale))
    return pd.DataFrame(
        {
            "km": [one.km for one in rules],
            "minutes": [one.ages[0] for one in rules],
            "fresh_share": fresh,
            "stale_share": stale,
            "is_allowed": stale <= search.max_stale + 1e-12,
        }
    )
