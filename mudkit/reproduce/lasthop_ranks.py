"""Row L9 of Last hop: the delay stage for ranks that fall, its waste against its timeliness."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.sources import Outages
from mudkit.systems.lasthop import LEARNT, Forwarding, RankChanges, Scenario, message_lifecycles
from mudkit.systems.lasthop.study.simulation import play_best, spool_factory

_MINUTES: Final = (0.0, 10.0, 30.0, 60.0, 120.0, 240.0, 480.0)
"""Delays before a message may be prefetched."""
_OUTAGES: Final = Outages(0.5, per_day=12)
_CHANGES: Final = RankChanges(retracted_share=0.3, after=3600.0)
_LIMIT: Final = 16
_US_PER_HOUR: Final = 3.6e9


def measure_delays(
    say: Say = say_nothing,
    *,
    days: int = 365,
    seeds: Sequence[int] = range(5),
    minutes: Sequence[float] = _MINUTES,
) -> Measured:
    """Measure row L9: waste, loss, and hours from the arrival of a message until it is on the device."""
    scenario = Scenario(32, 2, _OUTAGES, days=days, rank_changes=_CHANGES)
    delays: dict[str, float | str] = {f"{delay:g} min": 60 * delay for delay in minutes}
    delays[LEARNT] = LEARNT
    quantities: dict[str, Quantity] = {}
    for name, delay_s in delays.items():
        say(f"delay {name}")
        policy = Forwarding("buffer", _LIMIT, delay_s=delay_s)
        rows = [_judge(scenario, policy, seed) for seed in seeds]
        for number, measure in enumerate(("waste", "loss", "hours until on the device")):
            quantities[f"{measure}, delay {name}"] = Quantity.of([row[number] for row in rows])
    fixed = [f"{delay:g} min" for delay in minutes]
    waste = [quantities[f"waste, delay {name}"].median for name in fixed]
    hours = [quantities[f"hours until on the device, delay {name}"].median for name in fixed]
    quantities["steps at which waste rises with the delay"] = Quantity.of([_falls(reversed(waste))])
    quantities["steps at which messages come sooner with the delay"] = Quantity.of([_falls(hours)])
    none = quantities["waste, delay 0 min"].median
    quantities["waste with the delay learnt, over without"] = Quantity.of(
        [quantities[f"waste, delay {LEARNT}"].median / none]
    )
    return Measured(
        quantities,
        scenario.describe() | {"max": None, "policy": f"buffer, limit {_LIMIT}", "seeds": list(seeds)},
    )


def _judge(scenario: Scenario, policy: Forwarding, seed: int) -> tuple[float, float, float]:
    """Return waste, loss, and the mean time in hours until messages that are read are on the device."""
    drawn = scenario.draw(seed)
    best = set(play_best(drawn, 0.0, math.inf).read_ids)
    table = message_lifecycles(drawn, spool_factory(policy, 0.0), math.inf)
    is_forwarded, is_read = table["forwarded_us"] >= 0, table["read_us"] >= 0
    took_us = (table["forwarded_us"] - table["came_us"])[is_read]
    lost = best - set(table.loc[is_read, "message"])
    return (
        float((is_forwarded & ~is_read).sum() / is_forwarded.sum()),
        len(lost) / len(best),
        float(took_us.mean() / _US_PER_HOUR),
    )


def _falls(values: Iterable[float]) -> int:
    """Count the steps at which values fall."""
    return sum(after < before for before, after in pairwise(values))


L9: Final = Row(
    name="L9",
    source="Last hop 4.4",
    paper="Where ranks may fall, a message waits in a delay stage before it is prefetched. The history of "
    "drops gives the delay; a formula, and waste against timeliness, are left to the future.",
    required=(
        Required("steps at which waste rises with the delay", "at most", 0),
        Required("steps at which messages come sooner with the delay", "at most", 0),
        Required("waste with the delay learnt, over without", "at most", 0.25),
    ),
    measure=measure_delays,
    minutes=0.5,
    known="three of ten messages are retracted, after an hour on average; the learnt delay outlasts nine of "
    "ten drops",
)

ROWS: Final = (L9,)
