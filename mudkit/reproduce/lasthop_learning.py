"""Row L8 of Last hop: policies that learn from past reads, beside the best fixed prefetch limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from mudkit.processes import spread_out
from mudkit.reproduce.row import Measured, Quantity, Required, Row, Say, say_nothing
from mudkit.systems.lasthop import Forwarding, simulate_grid

if TYPE_CHECKING:
    import pandas as pd

_LIMITS: Final = tuple(2**power for power in range(1, 11))
_USERS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Reads a day."""
_DOWNTIMES: Final = (0.5, 0.9, 0.95, 0.98)
_OFTEN: Final = (12.0, 1.0)
"""Outages a day: the figures' cycle, and one in which each outage has several reads."""
_POLICIES: Final = {
    "unified": Forwarding.of("unified"),
    "rate": Forwarding("rate"),
    "on-demand, reads remembered": Forwarding("on-demand", remembers_reads=True),
    "predict": Forwarding("predict"),
}
_BY: Final = ["outage", "user_frequency"]


def measure_learning(
    say: Say = say_nothing,
    *,
    days: int = 365,
    seeds: Sequence[int] = range(3),
    limits: Sequence[int] = _LIMITS,
    users: Sequence[float] = _USERS,
    downtimes: Sequence[float] = _DOWNTIMES,
) -> Measured:
    """Measure row L8: waste and loss together, over those of the limit that is best in each cell."""
    quantities: dict[str, Quantity] = {}
    over = {"outage": list(downtimes), "user_frequency": list(users)}
    for often in _OFTEN:
        named = f"{often:g} a day"
        fixed = {"days": days, "outages_per_day": often}
        say(f"fixed limits, {named}")
        with spread_out() as over_processes:
            by_limit = simulate_grid(
                {**over, "prefetch_limit": list(limits)}, fixed | {"policy": "buffer"}, seeds, over_processes
            )
            costs = _costs(by_limit, [*_BY, "prefetch_limit"])
            best = costs.groupby(_BY).min()
            for name, policy in _POLICIES.items():
                say(f"{name}, {named}")
                table = simulate_grid(over, fixed | {"policy": policy}, seeds, over_processes)
                above = _costs(table, _BY) - best
                quantities[f"{name} above the best limit, {named}"] = Quantity.of([above.max()])
                for value in ("waste", "loss"):
                    quantities[f"{value} of {name} at 90 %, 2 a day, {named}"] = Quantity.of(
                        table[(table["outage"] == 0.9) & (table["user_frequency"] == 2.0)][value].tolist()
                    )
        quantities[f"waste and loss of the best limit at 90 %, 2 a day, {named}"] = Quantity.of(
            [best.loc[0.9, 2.0]]
        )
    parameters = by_limit.attrs["parameters"] | {
        "outages_per_day": list(_OFTEN),
        "policy": "buffer, and ours",
    }
    return Measured(quantities, parameters | {"above": "in the cell where it is largest, mean of the seeds"})


def _costs(table: pd.DataFrame, by: list[str]) -> pd.Series[float]:
    """Return waste plus loss by the values of some columns, the mean of the seeds."""
    return table.groupby(by)[["waste", "loss"]].mean().sum(axis=1)


L8: Final = Row(
    name="L8",
    source="Last hop 4.2, 4.3 note 2",
    paper="Prefetching by a limit or by the rate of reads brings waste and loss to a few per cent, and the "
    "limit is better; it may be twice the average of past reads. A statistical prediction of reads is left "
    "open.",
    required=(
        Required("waste and loss of the best limit at 90 %, 2 a day, 12 a day", "at most", 0.05),
        Required("waste of rate at 90 %, 2 a day, 12 a day", "at most", 0.1),
        Required("loss of rate at 90 %, 2 a day, 12 a day", "at most", 0.1),
        Required("loss of unified at 90 %, 2 a day, 12 a day", "at most", 0.05),
        Required("predict above the best limit, 12 a day", "at most", 0.03),
        Required("predict above the best limit, 1 a day", "at most", 0.03),
    ),
    measure=measure_learning,
    minutes=2.0,
    known="predict is ours; where an outage has several reads, twice what one read takes is too little",
)

ROWS: Final = (L8,)
