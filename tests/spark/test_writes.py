"""label_writes through Spark: one row for each position, whatever the partitions."""

import datetime as dt
from collections import Counter

import numpy as np
import pytest
from spark_frames import T0, US, brute, frame, positions_of, reads_of

from mudkit import pipeline
from mudkit.errors import TraceContentError
from mudkit.trace.schema import READS, epoch_us

pytestmark = pytest.mark.spark


def labels(table):
    """Labels with how often each comes: rows have no order."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def expected(positions, reads):
    first = [None] * len(positions)
    for read in sorted(reads.to_pylist(), key=lambda r: (r["ts"], r["read_id"])):
        for point in brute(positions, read):
            first[point] = first[point] or (read["read_id"], read["ts"])
    return Counter(
        (row["device"], row["ts"], *(outcome or (None, None)))
        for row, outcome in zip(positions.to_pylist(), first, strict=True)
    )


@pytest.mark.soak(keep=1)
@pytest.mark.parametrize("seed", range(2))
def test_random_places_in_any_order_and_partition(spark, tmp_path, seed):
    rng = np.random.default_rng(seed)
    points = list(
        zip(rng.integers(0, 900, 700) * 10, rng.normal(60, 0.1, 700), rng.normal(20, 0.2, 700), strict=True)
    )
    points += points[:50]  # rows that repeat
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
    positions, asked = positions_of(points), reads_of(reads)
    given, read = frame(spark, positions, tmp_path / "p"), frame(spark, asked, tmp_path / "r")
    wanted = expected(positions, asked)
    assert 100 < sum(n for row, n in wanted.items() if row[2] is None) < 650
    for partitions in (1, 5):
        assert labels(pipeline.label_writes(given.repartition(partitions), read).toArrow()) == wanted


def test_schema_and_edges(spark, tmp_path):
    positions = positions_of([(0, 0, 0), (10, 0, 0), (11, 0, 0), (60, 0, 0)])
    asked = reads_of([("a", 10, 0, 0, 20, 10), ("b", 10, 0, 0, 20, 10), ("a", 40, 0, 0, 20, 29)])
    result = pipeline.label_writes(
        frame(spark, positions, tmp_path / "p"), frame(spark, asked, tmp_path / "r")
    )
    assert [(f.name, f.dataType.simpleString()) for f in result.schema] == [
        ("device", "string"),
        ("ts", "timestamp"),
        ("first_read_id", "bigint"),
        ("first_read_ts", "timestamp"),
    ]
    rows = sorted(result.toArrow().to_pylist(), key=lambda row: row["ts"])
    smallest = min(asked["read_id"].to_pylist()[:2])
    # The window (0, 10] has its end and not its beginning; that of the third read, (11, 40], not second 11.
    assert [row["first_read_id"] for row in rows] == [None, smallest, None, None]
    assert rows[1]["first_read_ts"] == rows[1]["ts"] == dt.datetime.fromtimestamp(T0 / US + 10, dt.UTC)


def test_without_reads_or_positions(spark, tmp_path):
    positions, asked = positions_of([(0, 0, 0)]), reads_of([("a", 5, 0, 0, 20, 60)])
    given, read = frame(spark, positions, tmp_path / "p"), frame(spark, asked, tmp_path / "r")
    none = frame(spark, READS.empty_table(), tmp_path / "none")
    assert pipeline.label_writes(given, none).toArrow()["first_read_ts"].to_pylist() == [None]
    assert pipeline.label_writes(given.filter("false"), read).count() == 0
    plain = pipeline.label_writes(given, read.drop("read_id")).toArrow()
    assert plain["first_read_id"].to_pylist() == asked["read_id"].to_pylist()
    assert (epoch_us(plain["first_read_ts"]) == T0 + 5 * US).all()


def test_bad_input(spark, tmp_path):
    given = frame(spark, positions_of([(0, 0, 0)]), tmp_path / "p")
    with pytest.raises(TraceContentError, match="box_km"):
        pipeline.label_writes(given, given)
    with pytest.raises(TraceContentError, match="lat"):
        pipeline.label_writes(
            given.drop("lat"), frame(spark, reads_of([("a", 0, 0, 0, 20, 60)]), tmp_path / "r")
        )
