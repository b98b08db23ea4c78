"""label_reads through Spark: equal to a brute-force count by the definition."""

from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from spark_frames import KM, T0, US, build_positions, build_reads, frame, search_points

from mudkit import pipeline, trace
from mudkit.errors import ParameterError, TraceContentError
from mudkit.pipeline import labels, slices
from mudkit.pipeline.coverage import read_labels
from mudkit.trace.schema import POSITIONS, epoch_us

pytestmark = pytest.mark.spark


def compute_labels(positions, reads, horizon_s, only=None):
    """Return labels by the definition: (read, cached) to (points, others, missing)."""
    rows = reads.to_pylist()
    chosen = rows if only is None else [rows[i] for i in only]
    answers, owner = {}, positions["device"].to_pylist()

    def find_points(row):
        return answers.setdefault(row["read_id"], search_points(positions, row))

    labels = {}
    for q in chosen:
        others = find_points(q) - {i for i, device in enumerate(owner) if device == q["device"]}
        labels[q["read_id"], None] = (len(find_points(q)), len(others), len(others))
        for p in rows:
            age_s = (q["ts"] - p["ts"]).total_seconds()
            if p["device"] == q["device"] and 0 < age_s <= horizon_s:
                missing = others - find_points(p)
                labels[q["read_id"], p["read_id"]] = len(find_points(q)), len(others), len(missing)
    return labels


def to_dict(table, only=None):
    chosen = None if only is None else set(only)
    return {
        (row["read_id"], row["cached_read_id"]): (row["points"], row["others"], row["missing"])
        for row in table.to_pylist()
        if chosen is None or row["read_id"] in chosen
    }


def test_edges_of_boxes_and_windows(spark, tmp_path):
    """Label points on the box's edge, at the window's ends, on the date line, at equal times."""
    half = 10 / KM  # of a 20 km box on the equator
    places = [0.0, half, -half, np.nextafter(half, 1), np.nextafter(-half, -1)]
    points = [(t, lat, lon) for t in (0, 1, 3600, 3601) for lat, lon in product(places, repeat=2)]
    points += [(1800, 0.0, lon) for lon in (180.0, -180.0, 179.95, -179.95, 179.8, -179.8)]
    reads = [
        ("a", 3600, 0.0, 0.0, 20, 3600),
        ("a", 3601, 0.0, 0.0, 20, 3600),
        ("a", 3601, 0.0, 0.05, 20, 1800),
        ("b", 3600, 0.0, 180.0, 20, 3600),
        ("b", 3601, 0.0, -179.95, 20, 3600),
        ("b", 7201, 0.0, -180.0, 20, 7200),
    ]
    positions, reads_table = build_positions(points), build_reads(reads)
    frames = frame(spark, positions, tmp_path / "p"), frame(spark, reads_table, tmp_path / "r")
    labels = pipeline.label_reads(*frames, horizon_s=3600).toArrow()
    assert to_dict(labels) == compute_labels(positions, reads_table, 3600)
    at_3600 = reads_table["read_id"][0].as_py()
    # Of the 25 places 9 lie in the box; of the times 0, 1, 3600, 3601 the window (0, 3600] has two.
    assert to_dict(labels)[at_3600, None] == (18, 18, 18)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(("seed", "is_spread"), [(0, False), (1, True), (1, False), (0, True), (2, True)])
def test_random_reads_match_the_definition_in_any_partition(spark, tmp_path, seed, is_spread, monkeypatch):
    """Send the reads, or put them together with the positions of their times: in small slices and chunks."""
    if is_spread:
        monkeypatch.setattr(labels, "MAX_SENT_READS", 39)
        monkeypatch.setattr(slices, "SLICE_READS", 8)
        monkeypatch.setattr(slices, "CHUNK_POINTS", 70)
        monkeypatch.setattr(labels, "_LISTED_READS", 7)
    rng = np.random.default_rng(seed)
    points = list(
        zip(rng.integers(0, 9000, 700), rng.normal(60, 0.1, 700), rng.normal(20, 0.2, 700), strict=True)
    )
    reads = [
        (
            rng.choice(["a", "b"]),
            int(rng.integers(0, 9000)),
            rng.normal(60, 0.1),
            rng.normal(20, 0.2),
            20,
            int(rng.choice([1800, 600, 5000])),
        )
        for _ in range(40)
    ]
    positions, reads_table = build_positions(points, devices=("a", "p", "b")), build_reads(reads)
    frames = frame(spark, positions, tmp_path / "p").repartition(5), frame(spark, reads_table, tmp_path / "r")
    counted = pipeline.label_reads(*frames, horizon_s=4000).toArrow()
    assert counted.num_rows == len(compute_labels(positions, reads_table, 4000))
    assert to_dict(counted) == compute_labels(positions, reads_table, 4000)
    in_process = read_labels(positions, reads_table, 4000.0)
    assert to_dict(in_process) == to_dict(counted)
    for row in [*counted.to_pylist(), *in_process.to_pylist()]:
        share = 1 - row["missing"] / row["others"] if row["others"] else 1.0
        assert row["completeness"] == pytest.approx(share)


def test_sampled_labels_of_the_taxi_trace(spark, cabspotting, tmp_path):
    """Compare all labels of 200 reads in a day of the recorded trace."""
    loaded = trace.load(cabspotting)
    day = [T0 + h * 3600 * US for h in (0, 30)]
    keep = [
        (epoch_us(t["ts"]) >= day[0]) & (epoch_us(t["ts"]) < day[1]) for t in (loaded.positions, loaded.reads)
    ]
    positions, reads_table = (
        loaded.positions.filter(pa.array(keep[0])),
        loaded.reads.filter(pa.array(keep[1])),
    )
    trace.Loaded(positions, reads_table, loaded.rejected).save(tmp_path / "sf")
    frames = [pipeline.read(spark, tmp_path / "sf", name) for name in ("positions", "reads")]
    labels = pipeline.label_reads(*frames).toArrow()
    only = np.random.default_rng(1).choice(len(reads_table), 200, replace=False)
    ids = reads_table["read_id"].take(only).to_pylist()
    assert to_dict(labels, ids) == compute_labels(positions, reads_table, 7200, only)
    assert len(labels) > 3 * len(reads_table)


def test_reads_without_ids_receive_ids(spark, tmp_path):
    positions, reads_table = build_positions([(0, 0, 0)]), build_reads([("a", 0, 0, 0, 20, 60)])
    plain = frame(spark, reads_table, tmp_path / "r").drop("read_id")
    labels = pipeline.label_reads(frame(spark, positions, tmp_path / "p"), plain).toArrow()
    assert to_dict(labels) == {(reads_table["read_id"][0].as_py(), None): (1, 1, 1)}


def test_answers_without_positions_are_complete(spark, tmp_path):
    reads_table = build_reads([("a", 0, 0, 0, 20, 60), ("a", 5, 0, 0, 20, 60)])
    no_positions = frame(spark, POSITIONS.empty_table(), tmp_path / "p")
    labels = pipeline.label_reads(no_positions, frame(spark, reads_table, tmp_path / "r")).toArrow()
    assert sorted(to_dict(labels).values()) == [(0, 0, 0)] * 3
    assert labels["completeness"].to_pylist() == [1.0] * 3


def test_invalid_input_is_refused(spark, tmp_path):
    positions = frame(spark, build_positions([(0, 0, 0)]), tmp_path / "p")
    reads = frame(spark, build_reads([("a", 0, 0, 0, 20, 60)]), tmp_path / "r")
    with pytest.raises(TraceContentError, match="no reads"):
        pipeline.label_reads(positions, reads.filter("false"))
    with pytest.raises(TraceContentError, match="box_km"):
        pipeline.label_reads(positions, positions)
    with pytest.raises(ParameterError, match="horizon"):
        pipeline.label_reads(positions, reads, horizon_s=0)
