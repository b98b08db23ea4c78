"""Coverage counts, compared with a brute-force count from the definition, point by point.

Places lie on a coarse grid around the date line and times on a grid of seconds, so that points on a box's
edge, at both ends of a window, on the date line and at equal times are frequent. Devices read what they wrote
themselves, and what a device wrote that never reads.
"""

import datetime as dt
import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit.pipeline import coverage
from mudkit.pipeline.coverage import NOTHING, Points, Reads, first_reads, read_labels
from mudkit.trace.schema import epoch_us, read_ids, timestamps
from mudkit.units import box_bounds, in_box

KM = 6371.0088 * math.pi / 180
STEP = 0.5  # degrees; boxes have half sides that are multiples of it, so that edges are met exactly
PLACE = st.tuples(st.integers(-2, 2), st.integers(-3, 3))
POINT = st.tuples(st.integers(0, 12), PLACE, st.sampled_from("abc"))
READ = st.tuples(
    st.sampled_from("ab"), st.integers(0, 12), PLACE, st.sampled_from([2, 4]), st.sampled_from([1, 4, 20])
)


@pytest.fixture(autouse=True, params=["as it is", "small pieces"])
def sizes(request, monkeypatch):
    """Run with the real sizes, and with pieces of a few points and reads: counts depend on none of them."""
    if request.param != "as it is":
        small = {"_PIECE_POINTS": 4, "_BLOCK_READS": 2, "_PAIR_ROWS": 3, "_SLICE_POINTS": 8}
        small |= {"_SEARCH_POINTS": 3, "_SEARCH_READS": 2, "_EDGE_READS": 3}
        for name, size in small.items():
            monkeypatch.setattr(coverage, name, size)


def lon_at(step):
    lon = 180 + step * STEP
    return lon - 360 if lon > 180 else lon  # 180 itself stays 180


def contains(read, point):
    """Return whether a read contains a point; both are on the equator, in steps of the grid."""
    _, t, (y, x), half, window = read
    pt, (py, px), _ = point
    return t - window < pt <= t and abs(py - y) <= half and abs(px - x) <= half


def build_table(reads):
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "device": [r[0] for r in reads],
            "ts": pa.array([start + dt.timedelta(seconds=r[1]) for r in reads], pa.timestamp("us", tz="UTC")),
            "lat": pa.array([0.0] * len(reads)),
            "lon": pa.array([lon_at(r[2][1]) for r in reads], pa.float64()),
            "box_km": [2 * r[3] * STEP * KM for r in reads],
            "window_s": [float(r[4]) for r in reads],
        }
    )


def add_counts(total, others, missing, pieces):
    for counts in pieces:
        cached = [None] * len(counts.read) if counts.cached is None else counts.cached.tolist()
        numbers = (counts.points.tolist(), counts.others.tolist(), counts.missing.tolist())
        for read, of, *counted in zip(counts.read.tolist(), cached, *numbers, strict=True):
            for sums, number in zip((total, others, missing), counted, strict=True):
                sums[read, of] += number


@given(
    st.lists(POINT, max_size=60),
    st.lists(READ, min_size=1, max_size=12, unique=True),
    st.integers(1, 20),
    st.lists(st.integers(0, 60), max_size=3),
)
@example(
    [(5, (0, 3), "a"), (5, (0, -3), "b"), (4, (0, 0), "c")],
    [("a", 5, (0, 0), 2, 1), ("a", 6, (0, 1), 4, 20)],
    20,
    [1],
)
@example([(5, (0, 2), "b"), (1, (0, 2), "b")], [("a", 5, (0, 0), 2, 4), ("a", 5, (0, 2), 2, 4)], 20, [])
@example([(5, (0, 0), "a")], [("a", 5, (0, 0), 2, 4), ("a", 6, (0, 0), 2, 4)], 20, [])  # its own only
@example(
    [(5, (0, 0), "b")] * 64 + [(5, (0, 0), "a")], [("a", 5, (0, 0), 2, 4)], 20, []
)  # more points than a word has bits
def test_counts_are_exact(points, reads, horizon, cuts):
    points = [(t, (0, x), d) for t, (_, x), d in points]  # all on the equator, like the reads
    reads = [(d, t, (0, x), h, w) for d, t, (_, x), h, w in reads]
    reads = list(dict.fromkeys(reads))
    prepared = Reads.of(build_table(reads), horizon)
    rows = build_table(reads).sort_by([("ts", "ascending"), ("device", "ascending")])
    assert len(prepared.ids) == len(rows)
    of_id = dict(zip(read_ids(build_table(reads)).tolist(), reads, strict=True))
    base = 1_577_836_800_000_000
    t_us = np.array([base + p[0] * 1_000_000 for p in points], np.int64)
    lat, lon = np.zeros(len(points)), np.array([lon_at(p[1][1]) for p in points], float)
    owner = prepared.owners(pa.array([p[2] for p in points], pa.string()))
    total, of_others, missing = Counter(), Counter(), Counter()
    edges = [0, *sorted(c for c in cuts if c < len(points)), len(points)]
    for a, b in pairwise(edges):
        some = Points(t_us[a:b], lat[a:b], lon[a:b], owner[a:b])
        add_counts(total, of_others, missing, prepared.count(some))
    expected_total, expected_others, expected_missing = Counter(), Counter(), Counter()
    for q, read in of_id.items():
        answer = [p for p in points if contains(read, p)]
        others = [p for p in answer if p[2] != read[0]]
        expected_total[q, None] = len(answer)
        expected_others[q, None] = expected_missing[q, None] = len(others)
        for p, earlier in of_id.items():
            if earlier[0] == read[0] and read[1] - horizon <= earlier[1] < read[1]:
                expected_total[q, p], expected_others[q, p] = len(answer), len(others)
                expected_missing[q, p] = sum(not contains(earlier, point) for point in others)
    assert +total == +expected_total
    assert +of_others == +expected_others
    assert +missing == +expected_missing
    assert {*total} <= {*expected_total}
    numbers = prepared.first(Points(t_us, lat, lon, owner)).tolist()
    for point, number in zip(points, numbers, strict=True):
        readers = [read for read in reads if read[0] != point[2] and contains(read, point)]
        first = of_id[int(prepared.ids[number])] if number != NOTHING else None
        assert (first in readers) if readers else (first is None)
        assert first is None or first[1] == min(read[1] for read in readers)


@given(st.lists(POINT, max_size=60), st.lists(READ, min_size=1, max_size=12, unique=True))
def test_a_device_alone_misses_nothing(points, reads):
    """One device reads and writes all: every cached answer is complete, and no write has to be sent."""
    reads = [("a", t, (0, x), half, window) for _, t, (_, x), half, window in reads]
    table = build_table(reads)
    positions = pa.table(
        {
            "device": pa.array(["a"] * len(points), pa.string()),
            "ts": timestamps(1_577_836_800_000_000 + 1_000_000 * np.array([p[0] for p in points], np.int64)),
            "lat": pa.array([0.0] * len(points), pa.float64()),
            "lon": pa.array([lon_at(p[1][1]) for p in points], pa.float64()),
        }
    )
    labels = read_labels(positions, table, 20.0)
    assert set(labels["missing"].to_pylist()) == {0}
    assert set(labels["completeness"].to_pylist()) == {1.0}
    assert first_reads(positions, table)["first_read_id"].null_count == len(points)


@pytest.mark.soak
@examples(10)  # half a second each
@given(st.integers(0, 2**32 - 1))
def test_counts_are_exact_over_many_pieces(seed):
    """Draw enough places for several pieces and blocks, sizes at which ranks and bits wrap."""
    rng = np.random.default_rng(seed)
    n, m = 9000, 150
    t_us = rng.integers(0, 20_000, n) * 1_000_000 + 1_600_000_000_000_000
    lat, lon = rng.normal(60, 0.2, n), (rng.normal(179.9, 0.4, n) + 180) % 360 - 180
    reads = pa.table(
        {
            "device": [f"d{i % 7}" for i in range(m)],
            "ts": pa.array(rng.integers(0, 20_000, m) * 1_000_000 + 1_600_000_000_000_000, pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "lat": rng.normal(60, 0.2, m),
            "lon": (rng.normal(179.9, 0.4, m) + 180) % 360 - 180,
            "box_km": rng.choice([5.0, 20.0, 60.0], m),
            "window_s": rng.choice([600.0, 7200.0], m),
        }
    )
    prepared = Reads.of(reads, 5000)
    owner = rng.integers(0, 9, n)
    total, of_others, missing = Counter(), Counter(), Counter()
    owners = prepared.owners(pa.array([f"d{number}" for number in owner]))
    add_counts(total, of_others, missing, prepared.count(Points(t_us, lat, lon, owners)))
    rows = reads
    t_read = epoch_us(rows["ts"])
    half = rows["box_km"].to_numpy() / 2 / KM
    inside = []
    for i in range(m):
        d_lon = np.abs((lon - rows["lon"][i].as_py() + 180) % 360 - 180)
        within = np.abs(lat - rows["lat"][i].as_py()) <= half[i]
        within &= d_lon <= half[i] / math.cos(math.radians(rows["lat"][i].as_py()))
        place = (rows[name][i].as_py() for name in ("lat", "lon", "box_km"))
        assert (within == in_box(lat, lon, box_bounds(*place))).all()  # the same box everywhere
        within &= (t_us <= t_read[i]) & (t_us > t_read[i] - rows["window_s"][i].as_py() * 1e6)
        inside.append(within)
    ids, device = read_ids(rows).tolist(), rows["device"].to_pylist()
    for q in range(m):
        others = inside[q] & (owner != int(device[q][1:]))
        assert total[ids[q], None] == inside[q].sum()
        assert missing[ids[q], None] == of_others[ids[q], None] == others.sum()
        for p in range(m):
            if device[p] == device[q] and 0 < t_read[q] - t_read[p] <= 5_000_000_000:
                assert missing[ids[q], ids[p]] == (others & ~inside[p]).sum()
                assert total[ids[q], ids[p]] == inside[q].sum()
                assert of_others[ids[q], ids[p]] == others.sum()


@given(
    st.lists(st.integers(0, 5000), min_size=1, max_size=300),
    st.sampled_from([1, 7, 64]),
    st.lists(st.integers(0, 5000), max_size=4),
)
def test_no_piece_straddles_many_reads(times, max_rows, bursts):
    """Draw points far apart in time: a piece over the gap would be compared with all reads in between."""
    rows = [("a", at, (0, 0), 2, 4) for at in [0, *bursts] for _ in range(200)]
    reads = Reads.of(build_table(rows))
    start_us = int(dt.datetime(2020, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    t_us = start_us + np.sort(np.array(times)) * 1_000_000
    pieces = list(reads._pieces(t_us, max_rows))
    assert [t for piece in pieces for t in t_us[piece]] == t_us.tolist()
    for piece in pieces:
        assert 1 <= len(t_us[piece]) <= max_rows
        between = np.diff(np.searchsorted(reads.end_us, t_us[piece]))
        assert not (between > coverage._BLOCK_READS).any()


def test_device_that_reads_each_second_has_few_pairs():
    """Label three hours of a read a second: 360 pairs for each read, not the 7,200 seconds of the horizon.

    An answer serves the next 360 reads; what is labelled is counted exactly.
    """
    seconds = 10_800
    reads = build_table([("a", second, (0, 0), 2, 20) for second in range(seconds)])
    prepared = Reads.of(reads, 7200.0)
    read, cached = prepared.pairs(0, seconds)
    assert len(read) == 360 * seconds - 360 * 361 // 2
    assert np.array_equal(np.unique(read - cached), np.arange(1, 361))
    # Another device writes each second: an answer of a second ago lacks one of twenty, an old one all.
    labels = read_labels(*_some_seconds(reads, 370), 7200.0).to_pandas()
    labels = labels.dropna().sort_values("read_id").merge(_numbers(reads), on="read_id")
    labels = labels.merge(_numbers(reads).rename(columns=lambda name: f"cached_{name}"), on="cached_read_id")
    age = labels["number"] - labels["cached_number"]
    assert (labels["missing"] == np.minimum(age, labels["others"])).all()


def _some_seconds(reads, seconds):
    """Return the points of another device, one a second, and the reads of these seconds."""
    some = reads.slice(0, seconds)
    return some.select(["ts", "lat", "lon"]).append_column("device", pa.array(["b"] * seconds)), some


def _numbers(reads):
    return pd.DataFrame({"read_id": read_ids(reads), "number": range(len(reads))})
