import numpy as np
import pyarrow as pa
import pytest

from mudkit.errors import ParameterError, TraceContentError
from mudkit.trace.derive import Rule, derive_reads
from mudkit.trace.schema import POSITIONS, READS, timestamps


def positions(*rows):
    """Rows of (device, seconds, kilometres north)."""
    device, t, km = zip(*rows, strict=True)
    n = len(rows)
    columns = [
        pa.array(device),
        timestamps((np.array(t) * 1_000_000).astype(np.int64)),
        pa.array(np.array(km) / 111.195),
        pa.array(np.zeros(n)),
        pa.nulls(n, pa.float64()),
    ]
    return pa.table(columns, schema=POSITIONS)


def times(reads):
    return [(row["device"], int(row["ts"].timestamp())) for row in reads.to_pylist()]


def test_occupancy_is_the_change_from_empty_to_occupied():
    table = positions(*[("a", 60 * i, i) for i in range(5)], *[("b", 60 * i, i) for i in range(3)])
    occupied = pa.array([False, True, True, False, False, True, False, None])
    reads = derive_reads(table, Rule("occupancy"), box_km=20, window_s=7200, occupied=occupied)
    assert times(reads) == [("a", 60)]  # b starts occupied, and a null is no change
    assert set(reads["origin"].to_pylist()) == {"derived: occupancy"}
    assert reads.schema == READS


def test_trip_start_is_the_first_fix_and_movement_after_standing_still():
    table = positions(
        ("a", 0, 0), ("a", 60, 1), ("a", 120, 2),  # a trip
        ("a", 400, 2), ("a", 719, 2), ("a", 721, 2.2),  # 601 s without movement, then on
        ("a", 800, 3), ("a", 1399, 4),  # 599 s: the same trip
        ("b", 5, 0),
    )  # fmt: skip
    reads = derive_reads(table, Rule("trip_start", 600), box_km=1, window_s=60)
    assert times(reads) == [("a", 0), ("a", 721), ("b", 5)]


def test_a_gap_ends_a_trip():
    table = positions(("a", 0, 0), ("a", 60, 1), ("a", 5000, 9))
    assert times(derive_reads(table, Rule("trip_start"), box_km=1, window_s=60)) == [("a", 0), ("a", 5000)]


def test_none_gives_no_reads():
    reads = derive_reads(positions(("a", 0, 0)), Rule("none"), box_km=1, window_s=60)
    assert len(reads) == 0
    assert reads.schema == READS


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("occupancy", Rule("occupancy")),
        (" trip_start ", Rule("trip_start", 600)),
        ("trip_start()", Rule("trip_start", 600)),
        ("trip_start( still_s = 300 )", Rule("trip_start", 300)),
    ],
)
def test_rules_are_read(text, rule):
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize(
    "text", ["", "poisson", "occupancy(still_s=3)", "trip_start(3)", "trip_start(still_s=1.2.3)"]
)
def test_other_rules_are_refused(text):
    with pytest.raises(ParameterError, match="rule"):
        Rule.parse(text)


def test_occupancy_needs_occupancy():
    with pytest.raises(TraceContentError, match="fare"):
        derive_reads(positions(("a", 0, 0)), Rule("occupancy"), box_km=1, window_s=60)
