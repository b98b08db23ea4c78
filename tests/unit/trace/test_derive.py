import numpy as np
import pyarrow as pa
import pytest

from mudkit.errors import TraceContentError
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
        ("a", 0, 0),
        ("a", 60, 1),
        ("a", 120, 2),  # a trip
        ("a", 400, 2),
        ("a", 719, 2),
        ("a", 721, 2.2),  # 601 s without movement, then on
        ("a", 800, 3),
        ("a", 1399, 4),  # 599 s: the same trip
        ("b", 5, 0),
    )
    reads = derive_reads(table, Rule("trip_start", 600), box_km=1, window_s=60)
    assert times(reads) == [("a", 0), ("a", 721), ("b", 5)]


@pytest.mark.parametrize("every_s", [1, 7, 30, 60])
def test_a_drive_has_the_same_trips_however_often_it_is_sampled(every_s):
    # At 5 m/s for 10 minutes, 12 minutes there, back home, half an hour at home, away again.
    t_s = np.arange(0, 4321, every_s)
    km = np.interp(t_s, [0, 600, 1320, 1920, 3720, 4320], [0, 3, 3, 0, 0, 3])
    reads = derive_reads(
        positions(*[("a", t, at) for t, at in zip(t_s, km, strict=True)]),
        Rule("trip_start"),
        box_km=1,
        window_s=60,
    )
    found_s = [t for _, t in times(reads)]
    assert len(found_s) == 3
    assert np.all(np.abs(np.subtract(found_s, [0, 1330, 3730])) <= max(every_s, 10))


def test_a_gap_ends_a_trip():
    table = positions(("a", 0, 0), ("a", 60, 1), ("a", 5000, 9))
    assert times(derive_reads(table, Rule("trip_start"), box_km=1, window_s=60)) == [("a", 0), ("a", 5000)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("occupancy", Rule("occupancy")),
        (" trip_start ", Rule("trip_start", 600)),
        ("trip_start()", Rule("trip_start", 600)),
        ("trip_start( still_s = 300 )", Rule("trip_start", 300)),
        ("trip_start(still_s=1234567.5)", Rule("trip_start", 1234567.5)),
        ("poisson(per_day=24)", Rule("poisson", per_day=24)),
        ("poisson( seed = -3, per_day = 0.25 )", Rule("poisson", per_day=0.25, seed=-3)),
    ],
)
def test_rules_are_read(text, rule):
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


@pytest.mark.parametrize("rule", ["none", "poisson"])
def test_one_position_gives_no_reads(rule):
    reads = derive_reads(positions(("a", T0, 0)), Rule(rule), box_km=1, window_s=60)
    assert len(reads) == 0
    assert reads.schema == READS


def test_occupancy_needs_occupancy():
    with pytest.raises(TraceContentError, match="fare"):
        derive_reads(positions(("a", 0, 0)), Rule("occupancy"), box_km=1, window_s=60)


def every(minutes, days, device="a"):
    """A device that reports every so many minutes, a kilometre further each time."""
    return positions(*[(device, T0 + 60 * minutes * i, i % 50) for i in range(int(days * 1440 / minutes))])


T0 = 1_211_100_000


@pytest.mark.soak
def test_poisson_comes_as_often_as_it_says():
    for per_day, days in ((24, 50), (0.5, 2000), (2000, 1)):
        reads = derive_reads(every(10, days), Rule("poisson", per_day=per_day), box_km=1, window_s=60)
        mean = per_day * days
        assert abs(len(reads) - mean) < 4 * np.sqrt(mean)
        gaps_s = np.diff([t for _, t in times(reads)])
        assert np.std(gaps_s) == pytest.approx(np.mean(gaps_s), rel=0.15)  # as exponential gaps have it


def test_poisson_says_its_rate_and_seed():
    reads = derive_reads(every(5, 2), Rule.parse("poisson(per_day=24)"), box_km=1, window_s=60)
    assert set(reads["origin"].to_pylist()) == {"derived: poisson(per_day=24, seed=0)"}
    assert reads.schema == READS
    other = derive_reads(every(5, 2), Rule.parse("poisson(per_day=24, seed=1)"), box_km=1, window_s=60)
    assert not set(times(other)) & set(times(reads))


@pytest.mark.soak
def test_poisson_reads_are_at_the_last_place():
    table = every(5, 3)
    at = {int(row["ts"].timestamp()): row["lat"] for row in table.to_pylist()}
    reads = derive_reads(table, Rule("poisson", per_day=240), box_km=1, window_s=60).to_pylist()
    assert reads
    for read in reads:
        assert read["lat"] == at[max(t for t in at if t <= read["ts"].timestamp())]


def test_poisson_is_silent_where_nothing_is_known():
    table = positions(
        ("a", T0, 0),
        ("a", T0 + 600, 1),  # ten minutes: known
        ("a", T0 + 1201, 2),  # a second more: not
        ("a", T0 + 90_000, 3),
        ("b", T0 + 90_100, 0),
    )
    reads = derive_reads(table, Rule("poisson", per_day=86_400), box_km=1, window_s=60)
    assert {device for device, _ in times(reads)} == {"a"}
    seconds = [t - T0 for _, t in times(reads)]
    assert 500 < len(seconds) < 700
    assert min(seconds) >= 0
    assert max(seconds) < 600
