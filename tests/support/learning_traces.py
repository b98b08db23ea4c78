"""Small labelled traces whose labels follow a rule that a tree can learn."""

import datetime as dt

import numpy as np
import pyarrow as pa

from mudkit.trace.schema import POSITIONS, USAGE, timestamps, with_read_ids
from mudkit.units import distance_km

START_US = int(dt.datetime(2020, 1, 6, tzinfo=dt.UTC).timestamp()) * 1_000_000
MINUTE_US = 60_000_000
HORIZON_US = 120 * MINUTE_US


def build_labelled_reads(devices=12, days=4, a_day=12, seed=0, noise=0.05):
    """Return reads of phones in two towns; answers are stale after 20 minutes in the east, 80 in the west.

    Returns
    -------
    labels, reads : pyarrow.Table
        Answers in the west hold 10 points, in the east 100; half of them are missing when stale.
    """
    rng = np.random.default_rng(seed)
    device = np.repeat(np.arange(devices), days * a_day)
    day = np.tile(np.repeat(np.arange(days), a_day), devices)
    t_us = START_US + day * 1440 * MINUTE_US + rng.integers(8 * 60, 20 * 60, len(device)) * MINUTE_US
    t_us += rng.integers(0, MINUTE_US, len(device))
    east = device % 2
    lat, lon = 30 + rng.normal(0, 0.02, len(device)), -97 + 3.0 * east + rng.normal(0, 0.02, len(device))
    rows = len(device)
    reads = with_read_ids(
        pa.table(
            {
                "device": [f"phone-{number:02d}" for number in device],
                "ts": timestamps(t_us),
                "lat": lat,
                "lon": lon,
                "box_km": np.full(rows, 20.0),
                "window_s": np.full(rows, 7200.0),
                "origin": ["recorded"] * rows,
            }
        )
    )
    ids, points = reads["read_id"].to_numpy(), np.where(east == 1, 100, 10)
    # Pairs of two reads of one device, whose reads follow each other.
    read, cached = np.meshgrid(np.arange(days * a_day), np.arange(days * a_day), indexing="ij")
    first = np.arange(0, rows, days * a_day)[:, np.newaxis, np.newaxis]
    read, cached = (first + read).ravel(), (first + cached).ravel()
    age_us = t_us[read] - t_us[cached]
    is_held = (age_us > 0) & (age_us <= HORIZON_US)
    read, cached = read[is_held], cached[is_held]
    age_min = (t_us[read] - t_us[cached]) / MINUTE_US
    stale = (age_min > np.where(east[read] == 1, 20, 80)) ^ (rng.random(len(read)) < noise)
    missing = np.where(stale, points[read] // 2, 0)
    labels = pa.table(
        {
            "read_id": pa.array(np.concatenate([ids, ids[read]])),
            "cached_read_id": pa.array(
                np.concatenate([ids, ids[cached]]), mask=np.arange(rows + len(read)) < rows
            ),
            "points": pa.array(np.concatenate([points, points[read]])),
            "others": pa.array(np.concatenate([points, points[read]])),
            "missing": pa.array(np.concatenate([points, missing])),
            "completeness": np.concatenate([np.zeros(rows), 1 - missing / points[read]]),
        }
    )
    return labels, reads


def shuffle_labels(labels, seed=1):
    """Return the same pairs with permuted labels: there is nothing to learn."""
    alone = labels.filter(labels["cached_read_id"].is_null())
    pairs = labels.filter(labels["cached_read_id"].is_valid())
    order = pa.array(np.random.default_rng(seed).permutation(len(pairs)))
    for name in ("missing", "completeness"):
        pairs = pairs.set_column(pairs.column_names.index(name), name, pairs[name].take(order))
    return pa.concat_tables([alone, pairs])


def build_positions(rows):
    """Build positions from (device, minutes, kilometres north)."""
    return pa.table(
        {
            "device": [row[0] for row in rows],
            "ts": timestamps(np.array([START_US + round(row[1] * MINUTE_US) for row in rows], np.int64)),
            "lat": [row[2] / 111.195 for row in rows],
            "lon": [0.0] * len(rows),
            "speed_mps": [0.0] * len(rows),
        }
    ).cast(POSITIONS)


def build_reads(rows, box_km=20.0, window_min=120.0):
    """Build reads from (device, minutes, kilometres north)."""
    columns = build_positions(rows).select(["device", "ts", "lat", "lon"])
    columns = columns.append_column("box_km", pa.array([box_km] * len(rows)))
    columns = columns.append_column("window_s", pa.array([60.0 * window_min] * len(rows)))
    return with_read_ids(columns.append_column("origin", pa.array(["recorded"] * len(rows))))


def contains(read, write):
    """Return whether a read contains a write, both as dicts, with an approximate box."""
    wait_s = (read["ts"] - write["ts"]).total_seconds()
    is_near = abs(distance_km(read["lat"], 0.0, write["lat"], 0.0)) <= read["box_km"] / 2
    return bool(0 <= wait_s < read["window_s"] and is_near)


def misses(read, write):
    """Return whether a read misses a write that has not been sent: its own it holds."""
    return read["device"] != write["device"] and contains(read, write)


def label_by_definition(positions, reads):
    """Return the result of `label_writes` by its definition."""
    first = []
    for write in positions.to_pylist():
        result = [read for read in reads.to_pylist() if misses(read, write)]
        first.append(min(result, key=lambda read: (read["ts"], read["read_id"]), default=None))
    return pa.table(
        {
            "device": positions["device"],
            "ts": positions["ts"],
            "first_read_id": pa.array([read and read["read_id"] for read in first], pa.int64()),
            "first_read_ts": pa.array([read and read["ts"] for read in first], pa.timestamp("us", "UTC")),
        }
    )


def to_usage(positions, reads):
    """Return positions and reads of a trace as usage."""
    written = pa.table({name: positions[name] for name in ("device", "ts", "lat", "lon")})
    asked_for = reads.select(["device", "ts", "lat", "lon", "box_km", "window_s"])
    parts = []
    for rows, op in ((written, "write"), (asked_for, "read")):
        known = {name: rows[name] for name in rows.column_names}
        known |= {
            name: pa.array([text] * len(rows)) for name, text in (("app", "a"), ("table", "t"), ("op", op))
        }
        columns = [known.get(field.name, pa.nulls(len(rows), field.type)) for field in USAGE]
        parts.append(pa.table(columns, names=USAGE.names).cast(USAGE))
    return pa.concat_tables(parts)
