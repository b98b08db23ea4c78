import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.errors import TraceContentError
from mudkit.trace.derive import Rule, _are_apart, derive_reads
from mudkit.trace.movement import list_fares
from mudkit.trace.schema import POSITIONS, READS, timestamps
from mudkit.units import distance_km


def build_positions(*rows):
    """Build positions from (device, seconds, kilometres north)."""
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


def list_times(reads):
    return [(row["device"], int(row["ts"].timestamp())) for row in reads.to_pylist()]


def test_occupancy_read_is_the_change_from_empty_to_occupied():
    table = build_positions(*[("a", 60 * i, i) for i in range(5)], *[("b", 60 * i, i) for i in range(3)])
    occupied = pa.array([False, True, True, False, False, True, False, None])
    reads = derive_reads(table, Rule("occupancy"), box_km=20, window_s=7200, occupied=occupied)
    assert list_times(reads) == [("a", 60)]  # b starts occupied, and a null is no change
    assert set(reads["origin"].to_pylist()) == {"derived: occupancy"}
    assert reads.schema == READS


def test_whole_fares_are_listed_with_length_and_time():
    table = build_positions(
        *[("a", 60 * i, i) for i in range(8)],
        *[("b", 60 * i, i) for i in range(4)],
        *[("c", t, t / 60) for t in (0, 60, 4000, 4060)],
        *[("d", 60 * i, i) for i in range(4)],
    )
    occupied = [False, True, True, False, True, True, True, False]  # two fares
    occupied += [True, True, False, True]  # one whose begin, and one whose end is not known
    occupied += [False, True, True, False]  # a silence
    occupied += [False, True, None, False]  # not known
    fares = list_fares(table, pa.array(occupied)).to_pylist()
    assert [(fare["device"], fare["ts"].timestamp(), fare["fare_s"]) for fare in fares] == [
        ("a", 60, 120),
        ("a", 240, 180),
    ]
    assert [fare["fare_km"] for fare in fares] == pytest.approx([2, 3], rel=1e-4)
    assert len(list_fares(table, None)) == 0


def test_trip_starts_at_the_first_fix_and_after_standing_still():
    table = build_positions(
        ("a", 0, 0),
        ("a", 60, 1),
        ("a", 120, 2),  # a trip
        ("a", 400, 2),
        ("a", 719, 2),
        ("a", 721, 2.2),  # 601 s without movement, then a new trip
        ("a", 800, 3),
        ("a", 1399, 4),  # 599 s: the same trip
        ("b", 5, 0),
    )
    reads = derive_reads(table, Rule("trip_start", 600), box_km=1, window_s=60)
    assert list_times(reads) == [("a", 0), ("a", 721), ("b", 5)]


@pytest.mark.parametrize("interval_s", [1, 7, 30, 60])
def test_trips_do_not_depend_on_the_sampling_interval(interval_s):
    # 10 minutes at 5 m/s, a stop of 12 minutes, back home, half an hour at home, away again.
    t_s = np.arange(0, 4321, interval_s)
    km = np.interp(t_s, [0, 600, 1320, 1920, 3720, 4320], [0, 3, 3, 0, 0, 3])
    reads = derive_reads(
        build_positions(*[("a", t, at) for t, at in zip(t_s, km, strict=True)]),
        Rule("trip_start"),
        box_km=1,
        window_s=60,
    )
    starts_s = [t for _, t in list_times(reads)]
    assert len(starts_s) == 3
    assert np.all(np.abs(np.subtract(starts_s, [0, 1330, 3730])) <= max(interval_s, 10))


def test_gap_ends_a_trip():
    table = build_positions(("a", 0, 0), ("a", 60, 1), ("a", 5000, 9))
    assert list_times(derive_reads(table, Rule("trip_start"), box_km=1, window_s=60)) == [
        ("a", 0),
        ("a", 5000),
    ]


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
def test_rules_are_parsed(text, rule):
    assert Rule.parse(text) == rule
    assert Rule.parse(str(rule)) == rule


def starts_by_the_words(rows, still_s):
    """Find reads as ``Rule.describe`` says, row by row."""
    starts, last = [], {}
    for device, t, km in rows:
        if device not in last:
            starts.append((device, t))
            last[device] = (t, km, km)
            continue
        moved_s, moved_km, before_km = last[device]
        if max(abs(km - before_km), abs(km - moved_km)) >= 0.05:
            if t - moved_s >= still_s:
                starts.append((device, t))
            moved_s, moved_km = t, km
        last[device] = (moved_s, moved_km, km)
    return starts


@given(
    steps=st.lists(
        st.tuples(st.sampled_from([30, 60, 299, 300, 301, 4000]), st.sampled_from([-88, -40, 0, 16, 40, 60])),
        max_size=40,
    ),
    still_s=st.sampled_from([0, 60, 300, 600]),
)
def test_trip_starts_are_those_of_the_description(steps, still_s):
    t, metres, rows = 0, 0, [("a", 0, 0.0)]
    for step_s, step_m in steps:
        t, metres = t + step_s, metres + step_m
        rows.append(("a", t, metres / 1000))
    rows.append(("b", 5, 0.0))
    rule = Rule("trip_start", still_s)
    reads = derive_reads(build_positions(*rows), rule, box_km=1, window_s=60)
    assert list_times(reads) == starts_by_the_words(rows, still_s)
    assert f"{still_s} s or more after it last moved" in rule.describe()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trip_start(still_s=300)", ["50 m", "300 s", "first position"]),
        ("poisson(per_day=24, seed=7)", ["24 times a day", "seed 7", "600 s"]),
        ("occupancy", ["takes up a fare"]),
        ("none", ["No reads"]),
    ],
)
def test_rules_describe_themselves_with_their_parameters(text, words):
    described = Rule.parse(text).describe()
    assert all(word in described for word in words)
    assert described.endswith(".")


@pytest.mark.parametrize("rule", ["none", "poisson"])
def test_one_position_gives_no_reads(rule):
    reads = derive_reads(build_positions(("a", T0, 0)), Rule(rule), box_km=1, window_s=60)
    assert len(reads) == 0
    assert reads.schema == READS


def test_occupancy_rule_requires_an_occupancy_column():
    with pytest.raises(TraceContentError, match="fare"):
        derive_reads(build_positions(("a", 0, 0)), Rule("occupancy"), box_km=1, window_s=60)


def build_regular_positions(minutes, days, device="a"):
    """Build the positions of a device that reports at an interval, a kilometre further each time."""
    return build_positions(
        *[(device, T0 + 60 * minutes * i, i % 50) for i in range(int(days * 1440 / minutes))]
    )


T0 = 1_211_100_000


@pytest.mark.soak
def test_poisson_reads_match_their_rate():
    for per_day, days in ((24, 50), (0.5, 2000), (2000, 1)):
        reads = derive_reads(
            build_regular_positions(10, days), Rule("poisson", per_day=per_day), box_km=1, window_s=60
        )
        mean = per_day * days
        assert abs(len(reads) - mean) < 4 * np.sqrt(mean)
        gaps_s = np.diff([t for _, t in list_times(reads)])
        assert np.std(gaps_s) == pytest.approx(np.mean(gaps_s), rel=0.15)  # as for exponential gaps


def test_poisson_origin_states_rate_and_seed():
    reads = derive_reads(
        build_regular_positions(5, 2), Rule.parse("poisson(per_day=24)"), box_km=1, window_s=60
    )
    assert set(reads["origin"].to_pylist()) == {"derived: poisson(per_day=24, seed=0)"}
    assert reads.schema == READS
    other = derive_reads(
        build_regular_positions(5, 2), Rule.parse("poisson(per_day=24, seed=1)"), box_km=1, window_s=60
    )
    assert not set(list_times(other)) & set(list_times(reads))


@pytest.mark.soak
def test_poisson_reads_are_at_the_last_position():
    table = build_regular_positions(5, 3)
    at = {int(row["ts"].timestamp()): row["lat"] for row in table.to_pylist()}
    reads = derive_reads(table, Rule("poisson", per_day=240), box_km=1, window_s=60).to_pylist()
    assert reads
    for read in reads:
        assert read["lat"] == at[max(t for t in at if t <= read["ts"].timestamp())]


def test_poisson_reads_stop_during_gaps():
    table = build_positions(
        ("a", T0, 0),
        ("a", T0 + 600, 1),  # ten minutes: no gap
        ("a", T0 + 1201, 2),  # a second more: a gap
        ("a", T0 + 90_000, 3),
        ("b", T0 + 90_100, 0),
    )
    reads = derive_reads(table, Rule("poisson", per_day=86_400), box_km=1, window_s=60)
    assert {device for device, _ in list_times(reads)} == {"a"}
    seconds = [t - T0 for _, t in list_times(reads)]
    assert 500 < len(seconds) < 700
    assert min(seconds) >= 0
    assert max(seconds) < 600


_LAT = st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 89.9999, 60.0, 0.0]))
_LON = st.one_of(st.floats(-180, 180), st.sampled_from([-180.0, 179.9999, -179.9999, 90.0, -90.0, 0.0]))
_NEARBY = st.one_of(st.floats(-0.001, 0.001), st.floats(-180, 180), st.just(0.0))


@given(
    st.lists(st.tuples(_LAT, _LON, _NEARBY, _NEARBY), min_size=1, max_size=30),
    st.sampled_from([0.001, 0.05, 3.0, 1000.0]),
)
def test_bounds_of_ways_decide_as_the_great_circle(places, radius_km):
    lat, lon, north, east = np.array(places).T
    to_lat, to_lon = np.clip(lat + north, -90, 90), (lon + east + 180) % 360 - 180
    apart = _are_apart(lat, lon, to_lat, to_lon, radius_km)
    assert apart.tolist() == (distance_km(lat, lon, to_lat, to_lon) >= radius_km).tolist()
