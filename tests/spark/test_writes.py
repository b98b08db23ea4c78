"""label_writes through Spark: one row for each position, in any partition."""

import datetime as dt
from collections import Counter

import numpy as np
import pytest
from spark_frames import T0, US, build_positions, build_reads, frame, search_points

from mudkit import pipeline
from mudkit.errors import TraceContentError
from mudkit.pipeline import labels
from mudkit.pipeline.coverage import first_reads
from mudkit.trace.schema import READS, epoch_us

pytestmark = pytest.mark.spark


def count_labels(table):
    """Return the labels with their counts: rows have no order."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def compute_labels(positions, reads):
    first, owner = [None] * len(positions), positions["device"].to_pylist()
    for read in sorted(reads.to_pylist(), key=lambda r: (r["ts"], r["read_id"])):
        for point in search_points(positions, read):
            if owner[point] != read["device"]:
                first[point] = first[point] or (read["read_id"], read["ts"])
    return Counter(
        (row["device"], row["ts"], *(outcome or (None, None)))
        for row, outcome in zip(positions.to_pylist(), first, strict=True)
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_random_writes_match_the_definition_in_any_partition(spark, tmp_path, seed):
    rng = np.random.default_rng(seed)
    points = list(
        zip(rng.integers(0, 900, 700) * 10, rng.normal(60, 0.1, 700), rng.normal(20, 0.2, 700), strict=True)
    )
    points += points[:50]  # duplicate rows
    reads = [
        (
            rng.choice(["a", "b"]),
            int(rng.integers(0, 900)) * 10,
            rng.normal(60, 0.1),
            rng.normal(20, 0.2),
            5,
            1800,
        )
        for _ in range(60)
    ]
    positions, reads_table = build_positions(points, devices=("a", "p", "b")), build_reads(reads)
    positions_frame, reads_frame = (
        frame(spark, positions, tmp_path / "p"),
        frame(spark, reads_table, tmp_path / "r"),
    )
    assert count_labels(first_reads(positions, reads_table)) == compute_labels(positions, reads_table)
    expected = compute_labels(positions, reads_table)
    assert 100 < sum(n for row, n in expected.items() if row[2] is None) < 700
    for partitions in (1, 5):
        assert (
            count_labels(
                pipeline.label_writes(positions_frame.repartition(partitions), reads_frame).toArrow()
            )
            == expected
        )


def test_schema_and_window_edges(spark, tmp_path):
    positions = build_positions([(0, 0, 0), (10, 0, 0), (11, 0, 0), (60, 0, 0)])
    reads_table = build_reads([("a", 10, 0, 0, 20, 10), ("b", 10, 0, 0, 20, 10), ("a", 40, 0, 0, 20, 29)])
    result = pipeline.label_writes(
        frame(spark, positions, tmp_path / "p"), frame(spark, reads_table, tmp_path / "r")
    )
    assert [(f.name, f.dataType.simpleString()) for f in result.schema] == [
        ("device", "string"),
        ("ts", "timestamp"),
        ("first_read_id", "bigint"),
        ("first_read_ts", "timestamp"),
    ]
    rows = sorted(result.toArrow().to_pylist(), key=lambda row: row["ts"])
    smallest = min(reads_table["read_id"].to_pylist()[:2])
    # The window (0, 10] includes its end but not its start; (11, 40], of the third read, excludes second 11.
    assert [row["first_read_id"] for row in rows] == [None, smallest, None, None]
    assert rows[1]["first_read_ts"] == rows[1]["ts"] == dt.datetime.fromtimestamp(T0 / US + 10, dt.UTC)


def test_no_reads_no_positions_and_reads_without_ids(spark, tmp_path):
    positions, reads_table = build_positions([(0, 0, 0)]), build_reads([("a", 5, 0, 0, 20, 60)])
    positions_frame, reads_frame = (
        frame(spark, positions, tmp_path / "p"),
        frame(spark, reads_table, tmp_path / "r"),
    )
    no_reads = frame(spark, READS.empty_table(), tmp_path / "none")
    assert pipeline.label_writes(positions_frame, no_reads).toArrow()["first_read_ts"].to_pylist() == [None]
    assert pipeline.label_writes(positions_frame.filter("false"), reads_frame).count() == 0
    plain = pipeline.label_writes(positions_frame, reads_frame.drop("read_id")).toArrow()
    assert plain["first_read_id"].to_pylist() == reads_table["read_id"].to_pylist()
    assert (epoch_us(plain["first_read_ts"]) == T0 + 5 * US).all()


@pytest.mark.parametrize("sent", [1, 0])
def test_invalid_input_is_refused(spark, tmp_path, monkeypatch, sent):
    """Refuse it in the same words whether the reads are sent to all tasks or are too many."""
    monkeypatch.setattr(labels, "MAX_SENT_READS", sent)
    positions_frame = frame(spark, build_positions([(0, 0, 0)]), tmp_path / "p")
    reads_frame = frame(spark, build_reads([("a", 0, 0, 0, 20, 60)]), tmp_path / "r")
    with pytest.raises(TraceContentError, match="box_km"):
        pipeline.label_writes(positions_frame, positions_frame)
    with pytest.raises(TraceContentError, match="lat"):
        pipeline.label_writes(positions_frame.drop("lat"), reads_frame)
