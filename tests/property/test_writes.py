"""First read of each point by another device, compared with a brute-force search from the definition.

As in test_coverage, places lie on a coarse grid around the date line and times on a grid of seconds, so that
edges, both ends of a window and equal times are frequent. Devices read what they wrote themselves.
"""

import math

import numpy as np
import pyarrow as pa
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit.pipeline.coverage import NOTHING, Points, Reads
from mudkit.trace.schema import epoch_us, read_ids, timestamps

KM = 6371.0088 * math.pi / 180
STEP = 0.5
BASE = 1_577_836_800_000_000
US = 1_000_000
POINT = st.tuples(st.integers(-2, 12), st.integers(-3, 3), st.integers(-3, 3), st.sampled_from("abc"))
READ = st.tuples(
    st.sampled_from("ab"),
    st.integers(-5, 14),
    st.integers(-3, 3),
    st.sampled_from([2, 4]),
    st.sampled_from([1, 4, 100]),
)


def lon_at(step):
    lon = 180 + step * STEP
    return lon - 360 if lon > 180 else lon  # 180 itself stays 180


def contains(read, point):
    """Return whether a read on the equator contains another's point, both in steps of the grid."""
    reader, t, x, half, window = read
    pt, px, py, owner = point
    return reader != owner and t - window < pt <= t and abs(px - x) <= half and abs(py) <= half


def build_table(reads):
    return pa.table(
        {
            "device": [r[0] for r in reads],
            "ts": timestamps(BASE + US * np.array([r[1] for r in reads], np.int64)),
            "lat": np.zeros(len(reads)),
            "lon": pa.array([lon_at(r[2]) for r in reads], pa.float64()),
            "box_km": pa.array([2 * r[3] * STEP * KM for r in reads], pa.float64()),
            "window_s": pa.array([float(r[4]) for r in reads], pa.float64()),
        }
    )


@given(st.lists(POINT, max_size=60), st.lists(READ, max_size=12))
@example([(5, 3, 0, "c"), (5, 3, 0, "c")], [("a", 5, 0, 4, 1), ("b", 5, 0, 4, 1)])  # a duplicate row
@example([(5, 3, 0, "a"), (5, 3, 0, "b")], [("a", 5, 0, 4, 1), ("b", 5, 0, 4, 1)])  # equal times
@example([(5, 0, 0, "c"), (6, 0, 0, "c")], [("a", -5, 0, 4, 100), ("a", 4, 0, 4, 100)])  # all reads precede
@example([(5, 0, 0, "a")], [])
def test_first_reads_are_exact(points, reads):
    prepared = Reads.of(build_table(reads))
    t_us = BASE + US * np.array([p[0] for p in points], np.int64)
    lon = np.array([lon_at(p[1]) for p in points], float)
    lat = np.array([p[2] * STEP for p in points], float)
    owner = prepared.owners(pa.array([p[3] for p in points], pa.string()))
    numbers = prepared.first(Points(t_us, lat, lon, owner))
    first_reads = [None if n == NOTHING else int(prepared.ids[n]) for n in numbers]
    ids = read_ids(build_table(reads)).tolist()
    assert first_reads == [
        min(((r[1], i) for r, i in zip(reads, ids, strict=True) if contains(r, p)), default=(0, None))[1]
        for p in points
    ]


@examples(40)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 60.0, 89.9, -89.9]))
def test_first_reads_are_exact_over_many_pieces(seed, around):
    """Draw places, also at the poles, windows of minutes or longer than the trace, and several pieces."""
    rng = np.random.default_rng(seed)
    n, m = 5000, 1300 if seed % 4 == 0 else 100
    t_us = rng.integers(0, 20_000, n) * US + BASE
    lat = np.clip(around + rng.normal(0, 0.3, n), -90, 90)
    lon = (rng.normal(179.9, 1.0 if abs(around) < 80 else 60.0, n) + 180) % 360 - 180
    reads = pa.table(
        {
            "device": [f"d{i % 7}" for i in range(m)],
            "ts": timestamps(rng.integers(0, 20_000, m) * US + BASE),
            "lat": np.clip(around + rng.normal(0, 0.3, m), -90, 90),
            "lon": (rng.normal(179.9, 1.0, m) + 180) % 360 - 180,
            "box_km": rng.choice([2.0, 20.0, 60.0], m),
            "window_s": rng.choice([600.0, 7200.0, 1e6], m, p=[0.6, 0.3, 0.1]),
        }
    )
    prepared = Reads.of(reads)
    owner = rng.integers(0, 9, n)
    first_reads = prepared.first(
        Points(t_us, lat, lon, prepared.owners(pa.array([f"d{number}" for number in owner])))
    )
    ids, t_read = read_ids(reads), epoch_us(reads["ts"])
    best = np.full(n, NOTHING)
    for i in sorted(range(m), key=lambda i: (t_read[i], ids[i]), reverse=True):
        row = {name: reads[name][i].as_py() for name in ("lat", "lon", "box_km", "window_s")}
        half = row["box_km"] / 2 / KM
        d_lon = np.abs((lon - row["lon"] + 180) % 360 - 180)
        inside = np.abs(lat - row["lat"]) <= half
        if abs(row["lat"]) + half < 90:  # else it contains the pole
            inside &= d_lon <= half / math.cos(math.radians(row["lat"]))
        inside &= owner != i % 7
        best[inside & (t_us <= t_read[i]) & (t_us > t_read[i] - row["window_s"] * US)] = i
    assert (
        np.where(first_reads == NOTHING, 0, prepared.ids[first_reads])
        == np.where(best == NOTHING, 0, ids[best])
    ).all()
    assert ((first_reads == NOTHING) == (best == NOTHING)).all()
