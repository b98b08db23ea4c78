"""Rows L1 to L6 of Last hop (Zagorodnov and Johansen): waste and loss by forwarding policy.

The row of speed, L7, is in :mod:`mudkit.reproduce.lasthop_speed`, those of policies that learn, L8, and of
ranks that fall, L9, in :mod:`~mudkit.reproduce.lasthop_learning` and :mod:`~mudkit.reproduce.lasthop_ranks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from mudkit.processes import spread_out
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.systems.lasthop import FIGURES, Forwarding, expected_waste, simulate_grid
from mudkit.systems.lasthop.study.sweeping import HOUR_S

if TYPE_CHECKING:
    import pandas as pd

_MIN_SPREAD_RUNS: Final = 100
"""Number of runs from which starting processes pays."""
MIN_MESSAGES: Final = 30
"""Number of messages below which no share is computed."""


def figure_sweep(
    number: int, over: Mapping[str, Sequence[Any]], fixed: Mapping[str, Any], seeds: Sequence[int]
) -> pd.DataFrame:
    """Run the sweep of one of the paper's figures, with other series (`over`) and values (`fixed`)."""
    figure = FIGURES[number]
    whole = {**figure["over"], **over}
    left = {name: values for name, values in whole.items() if name not in fixed}
    settings = {**figure["fixed"], **fixed}
    if math.prod(map(len, left.values())) * len(seeds) < _MIN_SPREAD_RUNS:
        return simulate_grid(left, settings, seeds)
    with spread_out() as over_processes:
        return simulate_grid(left, settings, seeds, map=over_processes)


def of_seeds(table: pd.DataFrame, value: str, **where: Any) -> Quantity:
    """Summarise a value over the seeds of one point."""
    return Quantity.of(_rows(table, where)[value].tolist())


def _rows(table: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of the table that have all of these values in these columns."""
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def worst(table: pd.DataFrame, value: str, by: str, **where: Any) -> Quantity:
    """Summarise a value over the seeds of the point at which its median is largest."""
    points = table[by].unique().tolist()
    quantities = [of_seeds(table, value, **where, **{by: point}) for point in points]
    return max(quantities, key=lambda quantity: quantity.median)


def pooled_losses(table: pd.DataFrame, by: str, **where: Any) -> tuple[list[Any], list[float]]:
    """Return the loss pooled over seeds by one parameter, where at least `MIN_MESSAGES` are read."""
    table = _rows(table, where)
    sums = table.assign(lost=table["loss"] * table["best"]).groupby(by)[["lost", "best"]].sum()
    sums = sums[sums["best"] >= MIN_MESSAGES]
    return sums.index.tolist(), (sums["lost"] / sums["best"]).tolist()


def falls(values: Sequence[float], by: float = 0.0) -> int:
    """Count the steps at which a series falls by more than some amount."""
    return sum(after < before - by for before, after in pairwise(values))


EXAMPLES: Final = (4, 32)
"""``Max`` of a user with 32 messages a day who reads once a day."""


def measure_formula(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(10),
) -> Measured:
    """Measure row L1: waste against the formula; `over` replaces series of Figure 1."""
    say("waste by Max and reads a day")
    table = figure_sweep(1, over or {}, {"days": days}, seeds)
    pairs = list(zip(table["user_frequency"], table["max"], strict=True))
    table["error"] = table["waste"] - [
        expected_waste(user_frequency=often, max=most, event_frequency=32) for often, most in pairs
    ]
    table["error"] = table["error"].abs()
    table["point"] = [f"Max {most}, {often:g} a day" for often, most in pairs]
    quantities = {
        "largest error of the formula": worst(table, "error", "point"),
        "points": Quantity.of([table["point"].nunique()]),
    }
    at = str(table.groupby("point")["error"].median().idxmax())
    return Measured(quantities, table.attrs["parameters"] | {"largest error at": at})


L1: Final = Row(
    name="L1",
    source="Last hop 4.2, Fig. 1",
    paper="Waste of on-line forwarding by overflow: 1 - uf·Max/ef, and not below 0. The figure itself is "
    "lost.",
    required=(
        Required("largest error of the formula", "at most", 0.02),
        Required("points", "at least", 56),
    ),
    measure=measure_formula,
    minutes=0.2,
)


def measure_examples(
    say: Say = say_nothing, *, days: int = 365, seeds: Sequence[int] = range(10)
) -> Measured:
    """Measure row L2: waste at the paper's two examples."""
    say(f"waste by Max {' and '.join(map(str, EXAMPLES))}, read once a day")
    table = figure_sweep(1, {"max": EXAMPLES}, {"user_frequency": 1.0, "days": days}, seeds)
    quantities = {f"waste, Max {most}": of_seeds(table, "waste", max=most) for most in EXAMPLES}
    return Measured(quantities, table.attrs["parameters"])


L2: Final = Row(
    name="L2",
    source="Last hop 4.2",
    paper="A user who reads at most 32 messages once a day of 32 wastes nothing; with Max 4, 88 %.",
    required=(
        Required("waste, Max 4", "within", 0.875, 0.01),
        # Where all can just be read, what waits is a random walk: it is never 0 at the end of a year, and
        # has the tolerance of the formula.
        Required("waste, Max 32", "at most", 0.02),
    ),
    measure=measure_examples,
    minutes=0.02,
)


BAND: Final = (16, 64)
"""Prefetch limits between which the paper has waste and loss below 1 %."""
OUTAGES_PER_DAY: Final = (1, 4, 12, 24)
FREQUENT: Final = (12, 24)
"""Outages a day at which the band exists."""
_BAND_SHARE: Final = 0.01
_FREQUENTLY: Final = tuple(f"{outages} a day" for outages in FREQUENT)


def measure_limits(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    outages_per_day: Sequence[int] = OUTAGES_PER_DAY,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L3: waste and loss by prefetch limit; `over` replaces series of Figure 3."""
    quantities: dict[str, Quantity] = {}
    rising = falling = 0
    low, high = BAND
    for often in outages_per_day:
        say(f"waste and loss by prefetch limit, {often} outages a day")
        table = figure_sweep(3, over or {}, {"outages_per_day": often, "days": days}, seeds)
        named = f"{often} a day"
        for value, limit in (("loss", low), ("loss", high), ("waste", low), ("waste", high)):
            quantities[f"{value} at {limit}, {named}"] = worst(table, value, "outage", prefetch_limit=limit)
        quantities[f"band begins at, {named}"] = Quantity.of([_first(table, "loss", _BAND_SHARE)])
        quantities[f"waste at the largest limit, {named}"] = worst(
            table, "waste", "outage", prefetch_limit=table["prefetch_limit"].max()
        )
        if often in FREQUENT:
            rising += _falls(table, "loss", -1.0, 1, low)
            falling += _falls(table, "waste", 1.0, high, table["prefetch_limit"].max())
    say("the same where the reads a day vary by a quarter")
    wide = figure_sweep(3, {"prefetch_limit": BAND[:1]}, {"days": days, "reads_cv": 0.25}, seeds)
    quantities["loss at 16, 12 a day, reads with a spread of a quarter"] = worst(wide, "loss", "outage")
    quantities["steps up to 16 at which the loss rises"] = Quantity.of([rising])
    quantities["steps from 64 on at which the waste falls"] = Quantity.of([falling])
    stated = table.attrs["parameters"] | {"outages_per_day": list(outages_per_day)}
    return Measured(quantities, stated | {"each figure": "at the outage share at which it is largest"})


L3: Final = Row(
    name="L3",
    source="Last hop 4.2, Fig. 3",
    paper="Prefetching up to a limit (ef 32, Max 8, uf 2): waste and loss are both below 1 % between 16 "
    "and 64, and waste levels off at 50 %. How often the network goes down is not said.",
    required=(
        *(
            Required(f"loss at {limit}, {often}", "below", 0.01)
            for often in _FREQUENTLY
            for limit in (16, 64)
        ),
        # Not only at both ends: from 16 on, up to the largest limit.
        *(Required(f"band begins at, {often}", "at most", 16, is_shape=True) for often in _FREQUENTLY),
        *(Required(f"waste at 16, {often}", "below", 0.01) for often in _FREQUENTLY),
        *(Required(f"waste at 64, {often}", "below", 0.01) for often in _FREQUENTLY),
        *(Required(f"waste at the largest limit, {often}", "within", 0.5, 0.02) for often in _FREQUENTLY),
        Required("steps up to 16 at which the loss rises", "at most", 0, is_shape=True),
        Required("steps from 64 on at which the waste falls", "at most", 0, is_shape=True),
    ),
    measure=measure_limits,
    minutes=1.5,
    known="a device with a limit of 64 holds 64 messages when the year ends that nobody reads, besides the "
    "5,840 that two reads of 8 a day take: a share of 64/5,904",
)


_READS_A_DAY: Final = tuple(FIGURES[2]["over"]["user_frequency"])
"""Numbers of reads a day in Figure 2."""


def measure_on_demand(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L4: loss of on-demand forwarding by downtime; `over` replaces series of Figure 2."""
    say("loss by downtime and reads a day")
    table = figure_sweep(2, over or {}, {"days": days}, seeds)
    # The paper counts no loss where on-line forwarding reads nothing either.
    table["loss"] = table["loss"].where(table["best"] > 0, 0.0)
    quantities = {
        f"loss at {share:.0%} downtime": worst(table, "loss", "user_frequency", outage=share)
        for share in (0.0, 1.0)
    }
    drops, peaks = 0, []
    for often in table["user_frequency"].unique().tolist():
        shares, losses = pooled_losses(table, "outage", user_frequency=often)
        drops += falls(losses)
        peaks.append(shares[losses.index(max(losses))])
        lost = dict(zip(shares, losses, strict=True))
        quantities[f"loss at 50 % over loss at 95 %, {often:g} a day"] = Quantity.of([lost[0.5] / lost[0.95]])
        quantities[f"loss at 95 %, {often:g} a day"] = of_seeds(
            table, "loss", outage=0.95, user_frequency=often
        )
    say("the same where reads in outages are remembered")
    policy = Forwarding("on-demand", remembers_reads=True)
    remembered = figure_sweep(2, {**(over or {}), "outage": [0.95]}, {"days": days, "policy": policy}, seeds)
    for often in remembered["user_frequency"].unique().tolist():
        quantities[f"loss at 95 %, {often:g} a day, reads remembered"] = of_seeds(
            remembered, "loss", user_frequency=often
        )
    quantities["steps before total outage at which the loss falls"] = Quantity.of([drops])
    quantities["downtime at which the loss is largest"] = Quantity.of(peaks)
    straight = "a straight line would have 0.526 as loss at 50 % over loss at 95 %"
    return Measured(quantities, table.attrs["parameters"] | {"for comparison": straight})


L4: Final = Row(
    name="L4",
    source="Last hop 4.2, Fig. 2",
    paper="The loss of on-demand forwarding (ef 32, Max 8) grows exponentially with the downtime to just "
    "below 100 %, and is 0 again at 100 %.",
    required=(
        Required("loss at 0% downtime", "at most", 0, is_shape=True),
        Required("loss at 100% downtime", "at most", 0, is_shape=True),
        Required("steps before total outage at which the loss falls", "at most", 0, is_shape=True),
        Required("downtime at which the loss is largest", "at least", 0.95, is_shape=True),
        # Exponential, and not in proportion, for each number of reads a day.
        *(
            Required(f"loss at 50 % over loss at 95 %, {often:g} a day", "below", 0.25)
            for often in _READS_A_DAY
        ),
    ),
    measure=measure_on_demand,
    minutes=0.4,
    known="with few reads a day more comes between two reads than a read takes, so the loss is in proportion "
    "to the downtime; it grows as the paper says where reads take all that has come",
)


def _first(table: pd.DataFrame, value: str, bound: float) -> float:
    """Return the smallest limit from which a value is below a bound at every outage share."""
    first = float("inf")
    for limit in sorted(table["prefetch_limit"].unique().tolist(), reverse=True):
        if worst(table, value, "outage", prefetch_limit=limit).median >= bound:
            break
        first = limit
    return first


def _falls(table: pd.DataFrame, value: str, sign: float, low: float, high: float) -> int:
    """Count the steps between two limits at which a value falls (sign -1: rises), over all outage shares."""
    part = table[table["prefetch_limit"].between(low, high)]
    medians = part.groupby(["outage", "prefetch_limit"])[value].median()
    return sum(falls((sign * line).tolist()) for _, line in medians.groupby(level="outage"))


SHORT_H: Final = 4.2
"""Expiration time that the paper finds near the maximum of the loss, and without a gap."""
LONG_H: Final = 136.8
"""5.7 days."""
THRESHOLD_H: Final = 8.0
"""The waking time between two reads a day."""
DOWNTIMES: Final = (0.9, 0.95)
"""Downtimes of the figure's caption and of the text."""
MAX_GAP_SHARE: Final = 0.05
"""Largest waste and loss of a threshold in the gap; the paper has "very small"."""
_NOISE: Final = 0.002
"""Noise of waste and loss: thresholds differ in the messages that are left over."""
_DOWN: Final = tuple(f"{share:.0%} downtime" for share in DOWNTIMES)


def measure_times(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L5: waste and loss by expiration time; `over` replaces series of Figures 4 and 5."""
    say("waste by expiration time and reads a day")
    wasted = figure_sweep(4, over or {}, {"days": days}, seeds)
    say("loss by expiration time and reads a day, 95 % downtime")
    lost = figure_sweep(5, over or {}, {"days": days}, seeds)
    say("loss by expiration time, 50 % downtime")
    less = figure_sweep(5, over or {}, {"days": days, "outage": 0.5, "user_frequency": 2.0}, seeds)
    rises = turns = sooner = 0
    quantities: dict[str, Quantity] = {}
    previous: list[float] = []
    for often in sorted(wasted["user_frequency"].unique().tolist()):
        line = wasted[wasted["user_frequency"] == often].groupby("expiration")["waste"].median().tolist()
        rises += falls(line[::-1])
        sooner += sum(more > fewer for fewer, more in zip(previous, line, strict=False))
        previous = line
        times_s, losses = pooled_losses(lost, "expiration", user_frequency=often)
        peak = losses.index(max(losses))
        turns += falls(losses[: peak + 1]) + falls(losses[peak:][::-1])
        quantities[f"h at which the loss is largest, {often:g} a day"] = Quantity.of([times_s[peak] / HOUR_S])
        quantities[f"largest loss, {often:g} a day"] = Quantity.of([losses[peak]])
        quantities[f"loss at 3 days over the largest, {often:g} a day"] = Quantity.of(
            [losses[-1] / losses[peak]]
        )
    quantities |= {
        "steps at which waste rises with the time": Quantity.of([rises]),
        "points at which waste rises with the reads a day": Quantity.of([sooner]),
        "steps at which the loss turns, its peak apart": Quantity.of([turns]),
    }
    quantities |= {
        f"waste at {name}, 2 a day": of_seeds(wasted, "waste", user_frequency=2.0, expiration=time_s)
        for name, time_s in (("16 s", wasted["expiration"].min()), ("3 days", wasted["expiration"].max()))
    }
    lower = max(pooled_losses(less, "expiration")[1])
    quantities["largest loss, 2 a day, 50 % downtime over 95 %"] = Quantity.of(
        [lower / quantities["largest loss, 2 a day"].median]
    )
    quantities["share of all that comes that is lost at 4 min, 2 a day"] = _lost_share(lost, 256.0, days)
    stated = lost.attrs["parameters"] | {
        "outage": "0 for waste, 0.95 for loss",
        "policy": "on-line for waste, on-demand for loss",
        "law of the times": "exponential",
        "loss": f"over all seeds together, where {MIN_MESSAGES} messages at least are read",
    }
    return Measured(quantities, stated)


L5: Final = Row(
    name="L5",
    source="Last hop 4.3, Fig. 4 and 5",
    paper="Expiration times from 16 s to 3 days (ef 32, Max unlimited): the waste of on-line forwarding "
    "falls with the time and with the reads a day; at 95 % downtime the loss of on-demand forwarding "
    "rises and falls again; 4.2 hours are near its top with 2 reads a day. With a better network "
    "it is lower.",
    required=(
        Required("steps at which waste rises with the time", "at most", 0),
        Required("points at which waste rises with the reads a day", "at most", 0),
        Required("waste at 16 s, 2 a day", "at least", 0.99),
        Required("steps at which the loss turns, its peak apart", "at most", 0),
        Required("h at which the loss is largest, 2 a day", "at least", 2.0),
        Required("h at which the loss is largest, 2 a day", "at most", 8.0),
        Required("loss at 3 days over the largest, 2 a day", "below", 0.9),
        Required("largest loss, 2 a day, 50 % downtime over 95 %", "below", 0.9),
    ),
    measure=measure_times,
    minutes=0.6,
)


def measure_thresholds(
    say: Say = say_nothing,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    days: int = 365,
    seeds: Sequence[int] = range(5),
) -> Measured:
    """Measure row L6: waste and loss by expiration threshold; `over` replaces series of Figure 6.

    The thresholds must include 8 h, the expiration times 4.2 h and 5.7 days.
    """
    quantities: dict[str, Quantity] = {}
    for down in DOWNTIMES:
        say(f"waste and loss by expiration threshold, {down:.0%} downtime")
        table = figure_sweep(6, over or {}, {"outage": down, "days": days}, seeds)
        named = f"{down:.0%} downtime"
        long = table[table["expiration"] == LONG_H * HOUR_S]
        for value in ("waste", "loss"):
            quantity = of_seeds(long, value, expiration_threshold_s=THRESHOLD_H * HOUR_S)
            quantities[f"{value} at 8 h, 5.7 days, {named}"] = quantity
        quantities[f"the best threshold's waste or loss, 4.2 h, {named}"] = _best(table, SHORT_H)
        predicted: dict[str, Any] = {
            "expiration": SHORT_H * HOUR_S,
            "outage": down,
            "policy": "predict",
            "days": days,
        }
        quantities[f"waste or loss of predict, 4.2 h, {named}"] = _larger_of(
            simulate_grid({}, {"max": None, **predicted}, seeds)
        )
        for time_s in sorted(table["expiration"].unique().tolist()):
            gap_h = _gap_h(table[table["expiration"] == time_s])
            quantities[f"thresholds in the gap, {time_s / HOUR_S:.3g} h, {named}"] = Quantity.of([len(gap_h)])
            for end, hours in zip(("from", "to"), gap_h[:: max(len(gap_h) - 1, 1)], strict=False):
                quantities[f"gap {end}, h, {time_s / HOUR_S:.3g} h, {named}"] = Quantity.of([hours])
        turns = 0
        for _, line in table.groupby("expiration"):
            medians = line.groupby("expiration_threshold_s")[["waste", "loss"]].median()
            turns += falls(medians["waste"].tolist()[::-1], _NOISE) + falls(medians["loss"].tolist(), _NOISE)
        quantities[f"steps at which waste rises or loss falls, {named}"] = Quantity.of([turns])
        one = {"expiration": LONG_H * HOUR_S, "expiration_threshold_s": "learnt"}
        learnt = figure_sweep(6, {}, one | {"outage": down, "days": days}, seeds)
        for value in ("waste", "loss"):
            quantities[f"{value} with the threshold learnt, 5.7 days, {named}"] = of_seeds(learnt, value)
    stated = table.attrs["parameters"] | {
        "outage": list(DOWNTIMES),
        "law of the times": "exponential",
        "a gap": f"both at most {MAX_GAP_SHARE:.0%}",
        "a step": f"by more than {_NOISE:.1%}",
    }
    return Measured(quantities, stated)


L6: Final = Row(
    name="L6",
    source="Last hop 4.3, Fig. 6",
    paper="What expires sooner than a threshold is not prefetched (ef 32, uf 2; 90 % downtime by the "
    "caption, 95 % by the text): at 8 h waste and loss of messages that last 5.7 days are very small, "
    "and for those of 4.2 h no threshold has both small.",
    required=(
        *(
            Required(f"{value} at 8 h, 5.7 days, {down}", "at most", MAX_GAP_SHARE)
            for down in _DOWN
            for value in ("waste", "loss")
        ),
        *(
            Required(f"the best threshold's waste or loss, 4.2 h, {down}", "at least", 0.2, is_shape=True)
            for down in _DOWN
        ),
        *(
            Required(f"steps at which waste rises or loss falls, {down}", "at most", 0, is_shape=True)
            for down in _DOWN
        ),
    ),
    measure=measure_thresholds,
    minutes=0.8,
)


def _lost_share(table: pd.DataFrame, time_s: float, days: int) -> Quantity:
    """Return the share of all arriving messages that is lost; of messages hardly ever read, few can be."""
    line = table[(table["expiration"] == time_s) & (table["user_frequency"] == 2.0)]
    return Quantity.of((line["loss"] * line["best"] / (32.0 * days)).tolist() or [0.0])


def _medians(table: pd.DataFrame) -> pd.Series[float]:
    """Return the larger one of the medians of waste and loss, by expiration threshold in seconds."""
    return table.groupby("expiration_threshold_s")[["waste", "loss"]].median().max(axis=1)


def _best(table: pd.DataFrame, hours: float) -> Quantity:
    """Return the larger one of waste and loss at the best threshold."""
    line = table[table["expiration"] == hours * HOUR_S]
    best = _medians(line).idxmin()
    return _larger_of(line[line["expiration_threshold_s"] == best])


def _larger_of(table: pd.DataFrame) -> Quantity:
    """Return the larger one of waste and loss over the seeds."""
    return Quantity.of(table[["waste", "loss"]].max(axis=1).tolist())


def _gap_h(table: pd.DataFrame) -> list[float]:
    """Return the thresholds in the gap, in hours."""
    medians = _medians(table)
    return [float(threshold_s) / HOUR_S for threshold_s in medians[medians <= MAX_GAP_SHARE].index]


ROWS: Final = (L1, L2, L3, L4, L5, L6)
