"""Numbers of the report cache_policy: measures of each policy, a grid of rules, the best with hindsight."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mudkit import intervals
from mudkit.figures import tiles
from mudkit.intervals import Interval
from mudkit.learning import FixedRule, RadioModel
from mudkit.learning.bound import fewest_of_all
from mudkit.learning.candidates import cells_of_reads
from mudkit.learning.costs import read_costs
from mudkit.learning.devices import Devices, Fleet, count_pairs
from mudkit.learning.evaluate import (
    READ_MEASURES,
    Hindsight,
    Tested,
    measures_by_read,
    sends_by_stale,
)
from mudkit.learning.measures import sums_by
from mudkit.learning.pairs import Pairs
from mudkit.learning.policies import MINUTES_A_DAY, Policy, slots_of_day
from mudkit.learning.replay import SENT, replay, stale_reads
from mudkit.learning.search import Choice, Recommendation, replay_rules
from mudkit.units import from_mercator

RULE, HINDSIGHT = "fixed rule", "with hindsight"
_BILLED: Final = [READ_MEASURES.index(name) for name in ("messages", "bytes", "radio_mj")]
_GRID_KM: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
_GRID_MINUTES: Final = (2.0, 5.0, 10.0, 15.0, 20.0, 40.0, 60.0, 120.0)


def choose_with_hindsight(devices: Devices, completeness: float, max_stale: float) -> tuple[float, Hindsight]:
    """Return the largest share of fresh answers within the limit, and the schedule that reaches it."""
    fleet = Fleet.of(devices.map(count_pairs))
    count = int(fleet.rows.sum())
    budget = int(max_stale * count + 1e-9)
    tables = sends_by_stale(devices, fleet, Tested(completeness, None), budget)
    sends = fewest_of_all(tables, budget)
    fresh = count - sends - np.arange(len(sends))
    stale = int(np.argmax(fresh))
    return float(fresh[stale] / max(count, 1)), Hindsight.of(fleet, tables, stale)


def stale_share(search: Recommendation, counts: NDArray[Any]) -> Interval:
    """Return a share of stale answers with the interval that the probability to miss the limit is from.

    ``counts`` are by device and day, as ``search.reads``.
    """
    return intervals.clustered(
        counts, search.device, search.day, weights=search.reads, ahead=True, limits=(0.0, math.inf)
    )


@dataclass(frozen=True)
class _MeasuredDays:
    """Sums of measures by device, by its id, and day of solar time; of shape (policies, rows, measures)."""

    device: NDArray[np.int64]
    day: NDArray[np.int64]
    sums: NDArray[np.float64]


@dataclass(frozen=True)
class _MeasureDays:
    """Sums of the measures of policies over the reads of some devices, by day."""

    completeness: float
    policies: tuple[Policy | Hindsight, ...]

    def __call__(self, pairs: Pairs) -> _MeasuredDays:
        is_stale, costs, radio = pairs.are_stale(self.completeness), read_costs("latency"), RadioModel()
        cell, device, day, reads = cells_of_reads(pairs)
        sums = np.zeros((len(self.policies), len(reads), len(READ_MEASURES)))
        for of_policy, policy in zip(sums, self.policies, strict=True):
            if isinstance(policy, Hindsight):
                served = policy.replay(pairs, is_stale)
            else:
                served = replay(pairs, policy.local(pairs))
            values = measures_by_read(pairs, is_stale, served, costs, radio)
            # A stale answer saves nothing: what it takes is what asking the server would have taken.
            billed = np.where(values[:, READ_MEASURES.index("stale_share")] > 0, SENT, served)
            values[:, _BILLED] = measures_by_read(pairs, is_stale, billed, costs, radio)[:, _BILLED]
            of_policy[:] = sums_by(cell, values, len(reads))
        return _MeasuredDays(device, day, sums)


def compare_policies(
    devices: Devices, search: Recommendation, fixed: Choice, hindsight: Hindsight
) -> pd.DataFrame:
    """Measure the policies: shares, data and energy of a read, with their intervals; a row for each."""
    rows: list[tuple[str, Policy | Hindsight]] = [(one.family, one.decisions) for one in search.choices]
    rows[1:1] = [(RULE, fixed.decisions)]
    rows.append((HINDSIGHT, hindsight))
    parts = devices.map(_MeasureDays(search.completeness, tuple(policy for _, policy in rows)))
    device, day = (np.concatenate([getattr(part, name) for part in parts]) for name in ("device", "day"))
    order = np.lexsort((day, device))
    sums = np.concatenate([part.sums for part in parts], axis=1)[:, order]
    table = []
    for (kind, policy), of_policy in zip(rows, sums, strict=True):
        columns = dict(zip(READ_MEASURES, of_policy.T, strict=True))
        columns["fresh_share"] = search.reads - columns["sent_share"] - columns["stale_share"]
        columns["data_bytes"] = columns.pop("bytes")
        is_chosen = search.has_enough_reads and kind == search.chosen.family
        row: dict[str, Any] = {"kind": kind, "is_recommended": is_chosen}
        for column, of_days in columns.items():
            is_share = column.endswith("_share") or column == "completeness"
            limits = (0.0, 1.0) if is_share else (0.0, math.inf)
            shown = (
                stale_share(search, of_days)
                if column == "stale_share"
                else intervals.clustered(
                    of_days, search.device, search.day, weights=search.reads, ahead=True, limits=limits
                )
            )
            row |= {column: shown.value, f"{column}_low": shown.low, f"{column}_high": shown.high}
        if kind == "always ask":  # by definition
            row |= {name: math.nan for name in row if re.match("(.*_share|completeness)_(low|high)", name)}
        if isinstance(policy, Hindsight):  # what bounds fresh answers bounds nothing else
            ends = [name for name in row if name.endswith(("_low", "_high"))]
            row |= dict.fromkeys(set(ends) - {"fresh_share_low", "fresh_share_high"}, math.nan)
            row |= dict.fromkeys(("completeness", "data_bytes", "radio_mj"), math.nan)
        table.append(row)
    frame = pd.DataFrame(table)
    return frame.assign(policy=frame["kind"] + np.where(frame["is_recommended"], " (recommended)", ""))


def try_rules(devices: Devices, search: Recommendation, rule: FixedRule) -> pd.DataFrame:
    """Replay some rules of distance and age on all reads, the best one and the fixed one among them."""
    best = search.choice("distance and age")
    framed = [rule, *([best.policy] if best is not None else [])]
    plain = [one for one in framed if isinstance(one, FixedRule) and not isinstance(one.minutes, tuple)]
    km = sorted({*_GRID_KM, *(one.km for one in plain)})
    longest = max(search.longest_s, 60.0) / 60
    minutes = sorted({*(age for age in _GRID_MINUTES if age <= longest), *(one.ages[0] for one in plain)})
    rules = [FixedRule(a, b) for a in km for b in minutes]
    sums = replay_rules(devices, search.completeness, search.split, rules)
    fresh, stale = (values[-1] / max(search.count, 1) for values in (sums.fresh, sums.stale))
    return pd.DataFrame(
        {
            "km": [one.km for one in rules],
            "minutes": [one.ages[0] for one in rules],
            "fresh_share": fresh,
            "stale_share": stale,
            "is_allowed": stale <= search.max_stale + 1e-12,
        }
    )


@dataclass(frozen=True)
class TimesOfReads:
    """Times of reads: the first one, and how many there are by minute of the day.

    ``by_minute`` are the reads by minute of mean solar time, ``solar_min`` how far this is ahead of UTC, in
    minutes, and ``solar_reads`` of how many.
    """

    first_us: int
    by_minute: NDArray[np.int64]
    solar_min: NDArray[np.int64]
    solar_reads: NDArray[np.int64]

    def per_slot(self, slots: int) -> NDArray[np.int64]:
        """Return the reads by equal parts of the day."""
        by_slot: NDArray[np.int64] = self.by_minute.reshape(slots, -1).sum(axis=1)
        return by_slot

    @property
    def median_solar_min(self) -> float:
        """Median of the minutes that solar time is ahead of UTC."""
        order = np.argsort(self.solar_min)
        past = np.cumsum(self.solar_reads[order])
        return float(self.solar_min[order][np.searchsorted(past, past[-1] / 2)])


def times_of_reads(devices: Devices) -> TimesOfReads:
    """Count reads by their times and the longitudes of their places, to a minute of solar time."""
    parts = devices.map(_times)
    return TimesOfReads(
        min(part.first_us for part in parts),
        np.sum([part.by_minute for part in parts], axis=0),
        *(np.concatenate([getattr(part, name) for part in parts]) for name in ("solar_min", "solar_reads")),
    )


def _times(pairs: Pairs) -> TimesOfReads:
    """Count reads by minute of the day, and by their quarter of a degree of longitude."""
    by_minute = np.bincount(slots_of_day(pairs.t_us, pairs.lon, MINUTES_A_DAY), minlength=MINUTES_A_DAY)
    ahead = np.unique(np.rint(4.0 * pairs.lon).astype(np.int64), return_counts=True)
    return TimesOfReads(int(pairs.t_us.min()), by_minute, *ahead)


@dataclass(frozen=True)
class _AnswersByPlace:
    """Count reads by cell of a map, and how many of them a policy answers fresh, or stale."""

    completeness: float
    policy: Policy
    zoom: int

    def __call__(self, pairs: Pairs) -> pd.DataFrame:
        served = replay(pairs, self.policy.local(pairs))
        is_stale = stale_reads(pairs.are_stale(self.completeness), served)
        x, y = tiles(self.zoom, pairs.lat, pairs.lon)
        answers = {"is_local": (served != SENT) & ~is_stale, "is_stale": is_stale, "reads": 1}
        table = pd.DataFrame({"x": x, "y": y, **answers})
        return table.groupby(["x", "y"], as_index=False).sum()


def answers_by_place(devices: Devices, search: Recommendation, zoom: int) -> pd.DataFrame:
    """Count reads, and fresh and stale answers of what is recommended, out of fold, by cell of a map.

    Columns are ``lat, lon`` (middle of the cell), ``reads, is_local, is_stale``.
    """
    parts = devices.map(_AnswersByPlace(search.completeness, search.chosen.decisions, zoom))
    table = pd.concat(parts).groupby(["x", "y"], as_index=False).sum()
    x, y = ((table.pop(name).to_numpy() + 0.5) * 2.0**-zoom for name in ("x", "y"))
    lat, lon = from_mercator(x, y)
    return table.assign(lat=lat, lon=lon)
