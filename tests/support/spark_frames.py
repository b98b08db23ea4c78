"""Small tables of positions and reads for Spark, and the brute-force answer of a read."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mudkit.trace.schema import POSITIONS, epoch_us, timestamps, with_read_ids

KM = 6371.0088 * math.pi / 180
US = 1_000_000
T0 = 1_211_100_000 * US


def frame(spark, table, path):
    """Load a table into Spark through Parquet, as a trace folder does."""
    pq.write_table(table, path)
    return spark.read.parquet(str(path))


def build_positions(rows, devices=("p",)):
    """Build positions from (seconds, lat, lon), with the devices in turn."""
    t, lat, lon = (np.array(column) for column in zip(*rows, strict=True))
    names = pa.array([devices[i % len(devices)] for i in range(len(t))])
    columns = [names, timestamps(T0 + (t * US).astype(np.int64)), pa.array(lat * 1.0), pa.array(lon * 1.0)]
    return pa.table([*columns, pa.nulls(len(t), pa.float64())], schema=POSITIONS)


def build_reads(rows):
    """Build reads from (device, seconds, lat, lon, box_km, window_s)."""
    device, t, lat, lon, box_km, window_s = (list(column) for column in zip(*rows, strict=True))
    columns = {
        "device": device,
        "ts": timestamps(T0 + (np.array(t) * US).astype(np.int64)),
        "lat": pa.array(lat, pa.float64()),
        "lon": pa.array(lon, pa.float64()),
        "box_km": pa.array(box_km, pa.float64()),
        "window_s": pa.array(window_s, pa.float64()),
        "origin": ["recorded"] * len(device),
    }
    return with_read_ids(pa.table(columns))


def search_points(positions, read):
    """Return the indices of the positions in the answer of a read."""
    t, lat, lon = epoch_us(positions["ts"]), positions["lat"].to_numpy(), positions["lon"].to_numpy()
    end = int(read["ts"].timestamp() * US)
    half = read["box_km"] / 2 / KM
    d_lon = np.abs(lon - read["lon"])
    d_lon = np.minimum(d_lon, 360 - d_lon)
    inside = (np.abs(lat - read["lat"]) <= half) & (d_lon <= half / math.cos(math.radians(read["lat"])))
    return set(np.flatnonzero(inside & (t > end - read["window_s"] * US) & (t <= end)).tolist())
