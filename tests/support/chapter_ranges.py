"""Ranges of the parameters of chapters, and random draws from them."""

from __future__ import annotations

import random
from typing import Any

from mudkit.consistency import MODELS

LINKS = ["wifi", "lte", "umts_3g", "edge"]
SEED = (0, 10_000)
DRIVERS: dict[str, Any] = {
    "source": [""],
    "access_log": [""],
    "rule": ["trip_start", "occupancy", "poisson(per_day=48, seed=0)"],
    "cars": (10, 16),
    "towns": (1, 3),
    "days": (3, 4),
    "look_again": (0.3, 0.95),
    "seed": SEED,
}
RANGES: dict[str, dict[str, Any]] = {
    "00_start_here": {
        "devices": (2, 8),
        "hours": (0.5, 6.0),
        "mobility": ["commute", "waypoint", "manhattan"],
        "link": LINKS,
        "outage_share": (0.0, 0.95),
        "outages_per_day": (0.5, 100.0),
        "items_per_day": (0.0, 50.0),
        "reads_per_day": (0.0, 50.0),
        "size_bytes": (0, 50_000),
        "seeds": (1, 2),
        "seed": SEED,
    },
    "01_mud_tables": {
        "look_minutes": (0.5, 120.0),
        "article_minutes": (0.5, 500.0),
        "max_age_s": (0.0, 7200.0),
        "stale_cost_j": (0.0, 100.0),
        "hours": (0.5, 6.0),
        "link": LINKS,
        "near_km": (0.1, 100.0),
        "adult_years": (5, 90),
        "seed": SEED,
    },
    "02_writer_predicates": {
        "adult_years": (10, 70),
        "reach_km": (0.1, 50.0),
        "readers": (1, 12),
        "writes": (1, 3),
        "update_s": (5.0, 2000.0),
        "article_bytes": (0, 60_000),
        "subscriptions": (1, 2000),
        "topics": (1, 50),
        "records": (1, 60),
        "seed": SEED,
    },
    "03_fork_sequential_views": {
        "ann": ["w1          w1>2…        r2      r2", "w1@1  w2@2  r1@1", "w1", ""],
        "bob": ["      r1    w1>3…        r3      r3", "    r1    r0", ""],
        "cyd": ["            r1               r1", "r0@0    [r2@2  ]", ""],
        "model": list(MODELS),
        "minutes": (2.0, 10.0),
        "operations": (1, 40),
        "edit_share": (0.0, 1.0),
        "cut_minutes": (0.0, 2.0),
        "replica_lag_s": (0.0, 300.0),
        "fresh_s": (0.0, 900.0),
        "stale_cost_s": (0.0, 300.0),
        "runs": (1, 5),
        "seed": SEED,
    },
    "04_last_hop": {
        "messages_per_day": (0.5, 100.0),
        "reads_per_day": (0.2, 20.0),
        "messages_per_read": (1, 40),
        "outage": (0.0, 0.98),
        "outages_per_day": (0.2, 48.0),
        "prefetch_limit": (1, 200),
        "small_days": (1, 5),
        "days": (2, 60),
        "seeds": (1, 2),
        "seed": SEED,
    },
    "05_sender_filters": {
        "hours": (0.2, 1.5),
        "publish_minutes": (0.5, 10.0),
        "area_km": (0.5, 20.0),
        "roam_km": (0.5, 30.0),
        "polling_s": (5.0, 900.0),
        "filter_polling_s": (20.0, 3600.0),
        "link": LINKS,
        "friends": (1, 5),
        "photo_bytes": (1, 200_000),
        "interested": (1, 5),
        "battery_wh": (0.1, 30.0),
        "base_mw": (1.0, 2000.0),
        "seed": SEED,
    },
    "06_context_propagation": {
        "cars": (1, 12),
        "minutes": (3.0, 10.0),
        "every_s": (20.0, 200.0),
        "mobility": ["commute", "waypoint", "manhattan"],
        "recorded": [""],
        "start": [""],
        "far_km": (0.5, 100.0),
        "near_km": (0.1, 10.0),
        "volume": (1, 60),
        "per_km": (0.0, 10.0),
        "cell_km": (0.2, 10.0),
        "chain": (0.01, 1.0),
        "max_retention_s": (10.0, 900.0),
        "link_kbps": (1.0, 100.0),
        "map_cars": (1, 30),
        "map_cell_km": (0.2, 10.0),
        "seed": SEED,
    },
    "07_stateful_policies": {
        "patients": (1, 6),
        "doctors": (1, 3),
        "hours": (0.1, 0.5),
        "every_s": (8.0, 60.0),
        "alarms_per_day": (0.0, 400.0),
        "alarm_minutes": (0.2, 10.0),
        "range_m": (1.0, 200.0),
        "battery_j": (50.0, 5000.0),
        "base_mw": (0.0, 500.0),
        "display_px": (20, 2000),
        "charge": (0.0, 100.0),
        "seed": SEED,
    },
    "08_traces_on_spark": {
        "source": ["../data/sample/positions.csv.gz"],
        "access_log": ["../data/sample/reads.csv.gz", ""],
        "rule": ["trip_start", "trip_start(still_s=300)", "poisson(per_day=48, seed=0)"],
        "tz": ["UTC", "America/Chicago", "Asia/Kathmandu"],
        "box_km": (0.5, 50.0),
        "window_s": (60.0, 20_000.0),
        "horizon_s": (60.0, 20_000.0),
        "rule_km": (0.0, 20.0),
        "rule_minutes": (0.0, 120.0),
        "completeness": (0.05, 1.0),
        "stale_cost": (0.0, 50.0),
    },
    "09_cache_policies": DRIVERS
    | {
        "completeness": (0.5, 1.0),
        "stale_cost": (0.1, 20.0),
        "rule_km": (0.0, 20.0),
        "rule_minutes": (0.0, 60.0),
        "loop_cars": (3, 5),
    },
    "10_write_batching": DRIVERS
    | {
        "cars": (
            24,
            30,
        ),  # with few, a tenth of the reads has only one class to learn from, which is an error
        "batch_minutes": (0.5, 120.0),
        "missed_cost": (0.0, 500.0),
    },
    "11_scoreboard": {
        "phones": (3, 5),
        "traffic_hours": (0.05, 0.2),
        "jams_per_day": (0.0, 200.0),
        "news_hours": (0.5, 3.0),
        "news_per_day": (0.0, 200.0),
        "photo_hours": (0.5, 4.0),
        "photo_bytes": (1, 60_000),
        "scenarios": (1, 2),
        "seeds": (1, 2),
        "seed": SEED,
    },
    "12_sync_engine": {
        "phones": (1, 2),
        "lists": (3, 6),
        "screens": (1, 3),
        "elsewhere_share": (0.0, 1.0),
        "looks_per_hour": (0.0, 30.0),
        "reports_per_hour": (0.0, 20.0),
        "changes_per_hour": (0.0, 30.0),
        "max_age_s": (0.0, 900.0),
        "queue_minutes": (0.0, 60.0),
        "wait_s_per_j": (0.0, 600.0),
        "offline_share": (0.0, 0.9),
        "hours": (0.1, 1.0),
        "link": LINKS,
        "seed": SEED,
    },
    "13_device_service": {
        "apps": (2, 4),
        "hours": (0.5, 1.0),
        "busy_per_hour": (1.0, 8.0),
        "outage_minutes": (1.0, 90.0),
        "writes": (2, 20),
        "looks": (3, 10),
        "max_age_s": (0.0, 1200.0),
        "far_km": (0.5, 12.0),
        "missing_cost_j": (0.0, 2000.0),
        "seed": SEED,
    },
    "14_learning_loop": {
        "cars": (3, 4),
        "days": (2, 4),
        "changes_on": (2, 5),
        "reads_per_day": (4.0, 24.0),
        "max_stale": (0.0, 0.5),
        "stale_cost": (0.5, 16.0),
        "seed": SEED,
    },
}
"""Range or some of the values of each parameter of a chapter. Sizes are small."""


def draw_parameters(chapter: str, draw: random.Random) -> dict[str, Any]:
    """Draw legal parameters, one in five at an end of its range."""
    values = {}
    for name, range_or_values in RANGES[chapter].items():
        if isinstance(range_or_values, list) or draw.random() < 0.2:
            values[name] = draw.choice(range_or_values)
        else:
            values[name] = (draw.randint if isinstance(range_or_values[0], int) else draw.uniform)(
                *range_or_values
            )
    return values
