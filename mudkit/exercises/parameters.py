"""Ranges of the numbers in the parameters cell of each chapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mudkit.checks import check_arguments, number, whole_number
from mudkit.errors import ParameterError, did_you_mean

_SEED: Final = (0, (1 << 31) - 1)
"""Seeds that every generator of random numbers takes."""
_DRIVERS: Final[dict[str, tuple[Any, Any]]] = {
    "cars": (1, 100_000), "towns": (1, "cars"), "days": (1, 3660), "look_again": (0.0, 0.95),
    "seed": _SEED,
}  # fmt: skip

RANGES: Final[dict[str, dict[str, tuple[Any, Any]]]] = {
    "00_start_here": {
        "devices": (1, 10_000), "hours": (0.01, 1e4), "outage_share": (0.0, 1.0),
        "outages_per_day": (0.01, 1e4), "items_per_day": (0.0, 1e6), "reads_per_day": (0.0, 1e6),
        "size_bytes": (0, 10_000_000), "seeds": (1, 1000), "seed": _SEED,
    },
    "01_mud_tables": {
        "look_minutes": (0.1, 1440.0), "article_minutes": (0.1, 1e5), "max_age_s": (0.0, 1e9),
        "stale_cost_j": (0.0, 1e9), "hours": (0.01, 1e4), "near_km": (0.0, 20_000.0), "adult_years": (0, 200),
        "seed": _SEED,
    },
    "02_writer_predicates": {
        "adult_years": (0, 200), "reach_km": (0.0, 20_000.0), "readers": (1, 10_000), "writes": (1, 1000),
        "update_s": (1.0, 1e6), "article_bytes": (0, 60_000), "subscriptions": (1, 10_000_000),
        "topics": (1, 1_000_000), "records": (1, 1_000_000), "seed": _SEED,
    },
    "03_fork_sequential_views": {
        "minutes": (0.1, 1e5), "operations": (1, 100_000), "edit_share": (0.0, 1.0),
        "cut_minutes": (0.0, "minutes"), "replica_lag_s": (0.0, 1e6), "fresh_s": (0.0, 1e9),
        "stale_cost_s": (0.0, 1e9), "runs": (1, 10_000), "seed": _SEED,
    },
    "04_last_hop": {
        "messages_per_day": (0.0, 1e6), "reads_per_day": (0.0, 1e6), "messages_per_read": (1, 1_000_000),
        "outage": (0.0, 1.0), "outages_per_day": (0.01, 1e4), "prefetch_limit": (0, 1_000_000),
        "small_days": (1, 3660), "days": (1, 36_600), "seeds": (1, 1000), "seed": _SEED,
    },
    "05_sender_filters": {
        "hours": (0.01, 1000.0), "publish_minutes": (0.01, 1e4), "area_km": (0.01, 10_000.0),
        "roam_km": (0.01, 10_000.0), "polling_s": (1.0, 1e6), "filter_polling_s": (1.0, 1e6),
        "friends": (1, 1000), "photo_bytes": (0, 10_000_000), "interested": (1, 1000),
        "battery_wh": (1e-6, 1e6), "base_mw": (0.0, 1e6), "seed": _SEED,
    },
    "06_context_propagation": {
        "cars": (1, 100_000), "minutes": (0.1, 1e5), "every_s": (0.1, 1e6), "far_km": (0.0, 20_000.0),
        "near_km": (0.0, 20_000.0), "volume": (1, 1_000_000), "per_km": (0.0, 1e6),
        "cell_km": (0.001, 20_000.0), "chain": (0.0, 1.0), "max_retention_s": (0.0, 1e9),
        "link_kbps": (1e-6, 1e9), "map_cars": (1, 100_000), "map_cell_km": (0.001, 20_000.0), "seed": _SEED,
    },
    "07_stateful_policies": {
        "patients": (1, 1000), "doctors": (1, 1000), "hours": (0.01, 240.0), "every_s": (1.0, 600.0),
        "alarms_per_day": (0.0, 1000.0), "alarm_minutes": (0.1, 600.0), "range_m": (1.0, 10_000.0),
        "battery_j": (0.001, 1e9), "base_mw": (0.0, 1e6), "display_px": (1, 100_000), "charge": (0.0, 100.0),
        "seed": _SEED,
    },
    "08_traces_on_spark": {
        "box_km": (0.001, 40_000.0), "window_s": (0.001, 1e9), "horizon_s": (0.001, 1e9),
        "rule_km": (0.0, 40_000.0), "rule_minutes": (0.0, 1e7), "completeness": (0.0, 1.0),
        "stale_cost": (0.0, 1e9),
    },
    "09_cache_policies": _DRIVERS | {
        "completeness": (0.0, 1.0), "stale_cost": (0.0, 1e9), "rule_km": (0.0, 40_000.0),
        "rule_minutes": (0.0, 1e7), "loop_cars": (1, 10_000),
    },
    "10_write_batching": _DRIVERS | {"batch_minutes": (0.0, 1e6), "missed_cost": (0.0, 1e9)},
    "11_scoreboard": {
        "phones": (1, 10_000), "traffic_hours": (0.01, 1e4), "jams_per_day": (0.0, 1e6),
        "news_hours": (0.01, 1e4), "news_per_day": (0.0, 1e6), "photo_hours": (0.01, 1e4),
        "photo_bytes": (0, 10_000_000), "scenarios": (1, 10_000), "seeds": (1, 1000), "seed": _SEED,
    },
    "12_sync_engine": {
        "phones": (1, 1000), "lists": (1, 1000), "screens": (1, "lists"), "elsewhere_share": (0.0, 1.0),
        "looks_per_hour": (0.0, 3600.0), "reports_per_hour": (0.0, 3600.0), "changes_per_hour": (0.0, 3600.0),
        "max_age_s": (0.0, 1e6), "queue_minutes": (0.0, 1e6), "wait_s_per_j": (0.0, 1e9),
        "offline_share": (0.0, 0.99), "hours": (0.01, 1000.0), "seed": _SEED,
    },
    "13_device_service": {
        "apps": (2, 100), "hours": (0.1, 1e4), "busy_per_hour": (0.1, 1e5), "outage_minutes": (0.1, 1e5),
        "writes": (2, 100_000), "looks": (1, 100_000), "max_age_s": (0.0, 1e9), "far_km": (0.01, 1e4),
        "missing_cost_j": (0.0, 1e9), "seed": _SEED,
    },
    "14_learning_loop": {
        "cars": (3, 1000), "days": (2, 60), "changes_on": (2, 1000), "reads_per_day": (1.0, 10_000.0),
        "max_stale": (0.0, 1.0), "stale_cost": (0.0, 1e6), "seed": _SEED,
    },
}  # fmt: skip
"""Least and largest value of each number of each chapter; a name stands for that parameter's value.

These exclude what means nothing. What is merely too much for a system is refused where it is used.
"""


@check_arguments(types=False)
def check_parameters(chapter: str, values: Mapping[str, Any]) -> None:
    """Raise ParameterError unless the numbers in the parameters cell of a chapter are in their ranges.

    Parameters
    ----------
    chapter : str
        Name of a chapter, for instance ``00_start_here``.
    values : mapping of str to object
        The parameters by name, among others: in a chapter, ``globals()``.

    Raises
    ------
    ParameterError
        There is no such chapter, or a parameter is out of its range; the error names it as the cell does.
    """
    if chapter not in RANGES:
        raise ParameterError(
            "There is no such chapter.",
            where="chapter",
            found=repr(chapter),
            expected=", ".join(RANGES),
            remedy=did_you_mean(chapter, RANGES),
        )
    for name, (low, high) in RANGES[chapter].items():
        top = values[high] if isinstance(high, str) else high
        check = whole_number if isinstance(low, int) else number
        check(name, values[name], low, top)
