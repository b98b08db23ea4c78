"""Small traces of links and positions."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa

from mudkit.trace.schema import LINKS, timestamps

T0_S = 1_680_619_753
EIGHT = dt.datetime(2010, 3, 1, 8, tzinfo=dt.UTC)


def build_links(rows):
    """Build links from (device, second, up, down_kbps)."""
    device, second, up, down = zip(*rows, strict=True)
    nulls = pa.nulls(len(rows), pa.float64())
    ts = timestamps(np.array([round((T0_S + s) * 1e6) for s in second], dtype=np.int64))
    columns = [pa.array(device), ts, pa.array(up), pa.array(down, pa.float64()), nulls, nulls]
    return pa.table(dict(zip(LINKS.names, columns, strict=True)), schema=LINKS)


def build_positions(*rows):
    """Build positions from (device, seconds after eight, latitude, longitude)."""
    device, s, lat, lon = zip(*rows, strict=True)
    ts = pa.array([EIGHT + dt.timedelta(seconds=x) for x in s], pa.timestamp("us", tz="UTC"))
    places = {"lat": pa.array(lat, pa.float64()), "lon": pa.array(lon, pa.float64())}
    return pa.table({"device": device, "ts": ts, **places})


TWO_LINKS = build_links(
    [("b", s, s != 2, 100.0 * s) for s in range(5)] + [("a", s, True, 7.0) for s in range(3)]
)
TRACE = build_positions(
    ("b", 100, 1.0, 10.0),
    ("a", 0, 0.0, 20.0),
    ("a", 200, 0.2, 20.0),
    ("alone", 2000, 5.0, 5.0),
    ("b", 1000, 1.0, 11.0),
    ("a", 100, 0.0, 20.0),
)
