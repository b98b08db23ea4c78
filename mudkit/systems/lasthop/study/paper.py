"""The paper's six figures as sweeps (Last hop 4.2, 4.3); what it does not say is chosen here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from mudkit.systems.lasthop.study.simulation import Parameter

__all__ = ["FIGURES", "HOUR_S"]

HOUR_S: Final = 3600.0
_OUTAGES: Final = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
_TIMES_S: Final = tuple(float(4**power) for power in range(2, 10))
"""From 16 seconds to 3 days."""


class Sweep(TypedDict):
    """Parameters of the runs of a figure."""

    over: dict[str, Sequence[Parameter]]
    fixed: dict[str, Parameter]


FIGURES: Final[dict[int, Sweep]] = {
    1: {
        "over": {
            "max": [2**power for power in range(7)],
            "user_frequency": [2.0**power for power in range(-2, 6)],
        },
        "fixed": {"policy": "on-line"},
    },
    2: {
        "over": {
            "outage": [*_OUTAGES, 0.98, 0.99, 1.0],
            "user_frequency": [2.0**power for power in range(-2, 6)],
        },
        "fixed": {"policy": "on-demand"},
    },
    3: {
        "over": {"prefetch_limit": [2**power for power in range(15)], "outage": list(_OUTAGES)},
        "fixed": {"policy": "buffer"},
    },
    4: {
        "over": {"expiration": list(_TIMES_S), "user_frequency": [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]},
        "fixed": {"max": None, "policy": "on-line"},
    },
    5: {
        "over": {"expiration": list(_TIMES_S), "user_frequency": [0.5, 1.0, 2.0, 4.0, 8.0, 16.0]},
        "fixed": {"max": None, "outage": 0.95, "policy": "on-demand"},
    },
    6: {
        "over": {
            "expiration_threshold_s": [HOUR_S * 2.0**power for power in range(-6, 8)],
            # Five between 4.2 hours and 5.7 days, as there are in the paper.
            "expiration": [HOUR_S * hours for hours in (4.2, 10.0, 24.0, 57.3, 136.8)],
        },
        # All that passes the threshold is prefetched.
        "fixed": {"max": None, "outage": 0.9, "policy": "buffer", "prefetch_limit": 1_000_000},
    },
}
"""What :func:`~mudkit.systems.lasthop.sweep` takes for each figure: ``sweep(**FIGURES[3])``.

32 messages a day, 2 reads of at most 8, 12 outages a day and a year are what ``simulate`` takes by itself.
"""
