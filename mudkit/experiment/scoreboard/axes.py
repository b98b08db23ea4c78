"""Two measures of all systems against each other: what they are called, and who is beaten in both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from mudkit.errors import ParameterError
from mudkit.experiment.scoreboard.board import pareto

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["GAINS", "LABELS", "front"]

GAINS: Final = frozenset({"useful", "useful_share", "battery_h"})
"""Of these measures more is better; of all others less."""

LABELS: Final[Mapping[str, str]] = {
    "useful": "useful deliveries",
    "useful_share": "useful, share of what was wanted",
    "lost": "wanted and lost",
    "stale": "wanted and stale",
    "wasted": "on the phone and wasted",
    "latency_s": "latency, median, s",
    "latency_p95_s": "latency, 95th percentile, s",
    "age_s": "age when it is seen, median, s",
    "up_kb": "up, kB",
    "down_kb": "down, kB",
    "messages": "messages",
    "wakeups": "wake-ups of radios",
    "radio_j": "radios, J",
    "battery_h": "battery, h",
    "server_events": "events on servers",
    "server_kb": "sent by servers, kB",
    "kb_per_useful": "for each useful delivery, kB",
    "j_per_useful": "for each useful delivery, J",
}
"""What stands at the axis of a measure, units included."""


def front(table: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Say which systems are on the Pareto front of two measures.

    Parameters
    ----------
    table : pandas.DataFrame
        A table with ``system``, a row each, and both measures.
    x, y : str
        Two of :data:`LABELS`.

    Returns
    -------
    pandas.DataFrame
        ``system``, both measures, and ``is_best``: no other is at least as good in both, and better in one.
        What has no value is never among the best.

    Raises
    ------
    ParameterError
        The table lacks one, or there is no such measure, or both are the same.
    """
    missing = [name for name in ("system", x, y) if name not in table.columns]
    unknown = [name for name in (x, y) if name not in LABELS]
    if missing or unknown or x == y:
        raise ParameterError(
            "These are no two measures of the table.",
            where="x, y",
            found=f"{x}, {y}",
            expected="two of " + ", ".join(name for name in LABELS if name in table.columns),
        )
    points = table[["system", x, y]].reset_index(drop=True)
    gain, cost = (points[name] if name in GAINS else -points[name] for name in (y, x))
    points["is_best"] = pareto(gain, -cost)
    return points
