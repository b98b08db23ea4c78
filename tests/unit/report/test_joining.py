"""Search for interval, cell and threshold: sums against pandas, planted traces, limits and intervals."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudkit import figures, units
from mudkit.report.joined_accuracy import (
    count_bins,
    distance_bins,
    distance_m,
    error_interval,
    left_interval,
    squares_m2,
)
from mudkit.report.joined_messages import (
    PARTS,
    Cells,
    Combination,
    Limits,
    Messages,
    Sizes,
    different_groups,
    join_different,
    join_last,
    join_own,
    keep_last,
    last_sent_bins,
    own_groups,
)
from mudkit.report.joined_sums import JoinedSums
from mudkit.report.joining import AS_GOOD, best_last, search, threshold_grid
from mudkit.report.source import TraceSource
from mudkit.trace.schema import READS, timestamps

SIZES = Sizes(400, 400)
LIMITS = Limits(300, 500.0)
T0_S = 1_200_000_000


def make_positions(device, t_s, lat, lon, speed=None):
    t_us = (1_000_000 * (T0_S + np.asarray(t_s))).astype(np.int64)
    columns = {"device": [f"d{number}" for number in device], "ts": timestamps(t_us)}
    columns |= {"lat": np.asarray(lat, float), "lon": np.asarray(lon, float)}
    columns["speed_mps"] = (
        pa.nulls(len(t_us), pa.float64()) if speed is None else pa.array(speed, pa.float64())
    )
    return pa.table(columns)


def joined_of(positions):
    """Return the sums of combinations of some positions."""
    rows = positions.sort_by([("device", "ascending"), ("ts", "ascending")])
    counts = pd.DataFrame({"what": ["positions"], "rows": [len(rows)]})
    return JoinedSums(TraceSource("made.csv", rows, READS.empty_table(), counts, "UTC"), 86_400)


def draw_positions(seed, rows=4000, devices=12):
    """Draw devices that walk about, with speeds of which some are missing."""
    random = np.random.default_rng(seed)
    device = random.integers(0, devices, rows)
    t_s = np.sort(random.integers(0, 7 * 86_400, rows))
    steps = np.cumsum(random.normal(0, 0.003, (2, rows)), axis=1)
    speed = np.where(random.random(rows) < 0.1, np.nan, random.exponential(8.0, rows))
    return make_positions(device, t_s, 37.7 + steps[0], -122.4 + steps[1], speed)


def count_by_pandas(positions, zoom, interval_s, threshold=None):
    """Recompute one combination without code of the report, but for the tile of a place."""
    frame = positions.to_pandas().sort_values(["ts", "device"], kind="stable", ignore_index=True)
    n = 2**zoom
    frame["x"] = np.floor((frame["lon"] + 180) / 360 * n).astype(int)
    phi = np.radians(frame["lat"])
    frame["y"] = np.floor((1 - np.log(np.tan(phi) + 1 / np.cos(phi)) / np.pi) / 2 * n).astype(int)
    frame["s"] = (
        frame["ts"].astype("int64") // 1000 / 1e6
        if frame["ts"].dtype == "datetime64[ns, UTC]"
        else (frame["ts"].astype("int64") / 1e6)
    )
    frame["number"] = (frame["s"] // interval_s).astype(int)
    keys = ["x", "y", "number"]
    frame["part"] = frame.groupby(keys).cumcount() // (threshold or len(frame) + 1)
    by = frame.groupby([*keys, "part"])
    filled = by["device"].transform("size")
    place = by["lat"].transform("mean"), by["lon"].transform("mean")
    frame["distance_m"] = 1000 * units.distance_km(frame["lat"], frame["lon"], *place)
    release_s = np.where(filled == threshold, by["s"].transform("max"), (frame["number"] + 1) * interval_s)
    errors = (frame["speed_mps"] - by["speed_mps"].transform("mean")).dropna()
    return {
        "sent": by.ngroups,
        "bytes": sum(400 if size == 1 else 300 for size in by.size()),
        "told_devices": int(by["device"].nunique().sum()),
        "devices": int(frame.groupby("number")["device"].nunique().sum()),
        "delay_s": float((release_s - frame["s"]).mean()),
        "error_m": float(np.sort(frame["distance_m"])[math.ceil(0.95 * len(frame)) - 1]),
        "speed_kmh": 3.6 * float(np.sqrt((errors**2).mean())) if len(errors) else math.nan,
    }


def test_costs_divide_what_is_sent_among_its_messages():
    """See :class:`~mudkit.report.joined_sums.Costs`: of a cell and interval two send one aggregate, a third its own."""
    lat, lon = [37.75, 37.75, 37.65, 37.65], [-122.41, -122.41, -122.2, -122.2]
    costs = joined_of(make_positions([0, 1, 1, 2], [0, 1, 2, 400], lat, lon)).costs(
        Combination("join", 300, zoom=14)
    )
    assert list(zip(costs.device, costs.messages, costs.alone, costs.parts / PARTS, strict=True)) == [
        (0, 1, 0, 0.5),
        (1, 2, 1, 0.5),
        (2, 1, 1, 0.0),
    ]


@pytest.mark.parametrize("threshold", [None, 2, 7])
@pytest.mark.parametrize(("zoom", "interval_s"), [(10, 3600), (13, 20_000), (15, 86_400)])
def test_sums_equal_those_of_pandas(zoom, interval_s, threshold):
    positions = draw_positions(zoom)
    sums = Cells(Messages(positions), zoom).sums(interval_s, threshold)
    expected = count_by_pandas(positions, zoom, interval_s, threshold)
    assert (sums.sent, sums.told_devices, sums.devices) == tuple(
        expected[name] for name in ("sent", "told_devices", "devices")
    )
    assert sums.bytes_out(Sizes(400, 300)) == expected["bytes"]
    assert sums.delay_s == pytest.approx(expected["delay_s"])
    assert sums.error_m() == pytest.approx(expected["error_m"], rel=0.025)
    assert sums.quantity_error("speed") == pytest.approx(expected["speed_kmh"])
    assert sums.quantity_error("devices") == pytest.approx(expected["told_devices"] / expected["devices"] - 1)


def test_sums_of_whole_days_add_up():
    messages = Messages(draw_positions(1))
    day = messages.t_us // 86_400_000_000
    parts = [Cells(messages.take(day == number), 14).sums(3600, 5) for number in np.unique(day)]
    whole, summed = Cells(messages, 14).sums(3600, 5), parts[0]
    for part in parts[1:]:
        summed += part
    for one, other in ((summed, whole), (whole, summed)):
        assert [filled.tolist() for filled in one.sizes] == [filled.tolist() for filled in other.sizes]
        assert one.distances.tolist() == other.distances.tolist()
        assert (one.messages, one.told_devices, one.devices) == (
            other.messages, other.told_devices, other.devices
        )  # fmt: skip
    assert (summed.wait_us, summed.values, summed.value_squares) == (
        whole.wait_us, whole.values, whole.value_squares
    )  # fmt: skip
    interval = error_interval(np.array([part.distances for part in parts]))
    assert interval.low <= whole.error_m() <= interval.high


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(8, 20), st.sampled_from([30, 600, 7200]), st.integers(1, 40))
def test_splitting_queues_equals_counting_parts(seed, zoom, interval_s, threshold):
    """Sizes of parts follow from those of whole queues, and smaller aggregates never err more."""
    cells = Cells(Messages(draw_positions(seed, 300, 5)), zoom)
    whole, parts = cells.sums(interval_s), cells.sums(interval_s, threshold)
    assert [filled.tolist() for filled in whole.split(threshold)] == [
        filled.tolist() for filled in parts.sizes
    ]
    assert whole.bytes_out(SIZES, threshold) == parts.bytes_out(SIZES) >= whole.bytes_out(SIZES)
    assert parts.wait_us <= whole.wait_us
    assert whole.told_devices <= parts.told_devices <= whole.messages
    own, different = join_own(cells, interval_s), join_different(cells, interval_s)
    assert math.isnan(parts.repeated_share) or 0 <= parts.repeated_share <= 1
    assert own.repeated_share == 1 or math.isnan(own.repeated_share)
    assert own.sent == whole.told_devices
    assert whole.sent <= min(own.sent, different.sent) <= whole.messages


def test_all_saving_is_one_device_that_repeats_itself():
    """Place devices far apart that stand still and report every 20 s: joining is of their own messages only."""
    device, number = (part.ravel() for part in np.mgrid[:8, :200])
    positions = make_positions(device, 20 * number, 37 + 0.1 * device, [-122.0] * len(device))
    messages = Messages(positions)
    result = search(joined_of(positions), LIMITS, SIZES, "devices")
    choice = result.choose()
    cells = Cells(messages, choice.zoom)
    sums = cells.sums(choice.interval_s)
    assert choice.interval_s == 300
    assert sums.own_repeats_share(SIZES) == 1
    assert join_different(cells, 300).left_share(SIZES) == 1
    assert join_own(cells, 300).left_share(SIZES) == sums.left_share(SIZES) == pytest.approx(1 / 15, rel=0.06)
    assert best_last(joined_of(positions), LIMITS, "devices")[0] == 300
    assert sums.quantity_error("devices") == 0


def test_many_devices_that_share_cells_save_without_repeats():
    """Report once from each of 3,000 devices, 60 at a time at ten places: no device repeats itself."""
    number = np.arange(3000)
    positions = make_positions(number, 30 * (number // 60), 37 + 0.1 * (number % 10), [-122.0] * 3000)
    messages = Messages(positions)
    choice = search(joined_of(positions), LIMITS, SIZES, "devices").choose()
    cells = Cells(messages, choice.zoom)
    sums = cells.sums(choice.interval_s)
    assert sums.own_repeats_share(SIZES) == 0
    assert sums.left_share(SIZES) == pytest.approx(1 / 60, rel=0.1)
    assert join_different(cells, choice.interval_s).left_share(SIZES) == sums.left_share(SIZES)
    assert keep_last(messages, choice.interval_s).left_share(SIZES) == 1
    assert join_last(messages, choice.zoom, choice.interval_s).sent == sums.sent


def test_search_keeps_its_limits_and_leaves_least_within_them():
    """Compare with all intervals of a fine grid: none within the limits leaves 5 % fewer bytes.

    The trace holds many intervals; in one of a few, errors go up and down with where intervals begin.
    """
    random = np.random.default_rng(5)
    device, number = (part.ravel() for part in np.mgrid[:40, :360])
    angle = 2 * np.pi * random.random(40)[device] + number / 9
    positions = make_positions(
        device, 10 * number, 37.7 + 0.02 * np.sin(angle), -122.4 + 0.02 * np.cos(angle)
    )
    messages = Messages(positions)
    for limits in (Limits(200, 300.0), Limits(200, 300.0, 4.0)):
        result = search(joined_of(positions), limits, SIZES, "devices")
        choice = result.choose()
        sums = Cells(messages, choice.zoom).sums(choice.interval_s, choice.threshold)
        assert choice.interval_s <= 200
        assert sums.keeps(limits, "devices")
        assert sums.left_share(SIZES) <= AS_GOOD * result.least * (1 + 1e-9)
        for zoom in range(10, 19):
            cells = Cells(messages, zoom)
            for interval_s in range(10, 201, 10):
                other = cells.sums(interval_s)
                if other.keeps(limits, "devices"):
                    assert AS_GOOD * other.left_share(SIZES) >= result.least


def test_limit_that_nothing_keeps_gives_no_choice():
    random = np.random.default_rng(0)
    number = np.arange(600)
    positions = make_positions(
        number % 3, number // 3, [37.7] * 600, [-122.4] * 600, random.exponential(9, 600)
    )
    result = search(joined_of(positions), Limits(60, 500.0, 0.001), SIZES, "speed")
    assert result.choose() is None
    assert result.least == math.inf


def test_single_message_is_searched():
    positions = make_positions([0], [0], [37.7], [-122.4])
    choice = search(joined_of(positions), LIMITS, SIZES, "devices").choose()
    assert choice.sums.left_share(SIZES) == 1
    assert choice.threshold is None


def test_fixed_level_is_the_only_one_tried():
    result = search(joined_of(draw_positions(2)), LIMITS, SIZES, "speed", zoom=12)
    assert {zoom for zoom, _ in result.tried} == {12}


@pytest.mark.parametrize("largest", [1, 2, 21, 100, 12_345])
def test_threshold_grid_ends_at_the_largest_queue(largest):
    grid = threshold_grid(largest)
    assert grid[-1] >= largest
    assert all(1.0 < b / a <= 2 for a, b in pairwise(grid))
    assert all(b / a <= 1.11 for a, b in pairwise(grid) if a >= 10)
    assert [float(f"{value:.2g}") for value in grid] == grid, "two digits"


def test_places_within_a_millimetre_are_the_same():
    """Move a place by a tenth of a millimetre, as rounding may, and by a centimetre."""
    lat = np.array([37.7, 37.7])
    lon = np.array([-122.4, -122.4])
    squares = squares_m2(lat, lon, lat + np.array([1e-9, 1e-7]), lon)
    assert np.sqrt(squares).tolist() == [0.0, pytest.approx(0.0111, rel=0.01)]
    assert (distance_bins(squares) > 0).tolist() == [False, True]


def test_interval_covers_other_days_of_the_same_fleet():
    """Draw 100 pairs of halves of days: the interval of one half covers what the other leaves."""
    random = np.random.default_rng(7)
    covered, widths = 0, []
    for _ in range(100):
        rate = random.gamma(8.0, 1 / 8.0, (20, 60))  # devices and days
        counts = random.poisson(20 * rate)
        costs = 400 / (1 + random.poisson(3 * rate))
        device, day = (part.ravel() for part in np.mgrid[:20, :60])
        rows = np.repeat(np.arange(len(device)), counts.ravel())
        halves = [rows[day[rows] % 2 == half] for half in (0, 1)]
        of_halves = [costs.ravel()[rows] for rows in halves]
        value, other = (of.mean() / 400 for of in of_halves)
        ones = np.ones(len(halves[0]), dtype=np.int64)
        one = left_interval(value, of_halves[0], ones, device[halves[0]], day[halves[0]], 400)
        half_width = math.sqrt(2) * (one.high - one.low) / 2  # the other half varies as much
        covered += abs(other - one.value) <= half_width
        widths.append(one.high - one.low)
    assert 90 <= covered <= 100
    assert 0 < np.mean(widths) < 0.2


def test_few_devices_and_days_have_no_interval():
    ones = np.ones(10, dtype=np.int64)
    of = left_interval(0.25, np.full(10, 100.0), ones, np.arange(10) % 2, np.arange(10) // 5, 400)
    assert (of.value, of.kind) == (0.25, "value")


def test_recorded_taxis_leave_what_duckdb_counts(cabspotting):
    """Count the headline of two recorded days with SQL that shares nothing with the search."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb counts independently")
    from mudkit.report import open_source

    source = open_source(str(cabspotting), format="cabspotting", needs_reads=False)
    t_us = source.positions["ts"].cast(pa.int64()).to_numpy()
    begin_us = 1_211_500_800_000_000
    positions = source.positions.filter(pa.array((t_us >= begin_us) & (t_us < begin_us + 86_400_000_000)))
    messages = Messages(positions)
    choice = search(joined_of(positions), LIMITS, SIZES, "devices").choose()
    sums = Cells(messages, choice.zoom).sums(choice.interval_s, choice.threshold)
    table = pa.table(
        {"device": positions["device"], "s": t_us[(t_us >= begin_us) & (t_us < begin_us + 86_400_000_000)] // 10**6,
         "lat": positions["lat"], "lon": positions["lon"]}
    )  # fmt: skip
    query = f"""
        with placed as (
            select *, s // {choice.interval_s} as number,
                floor((lon + 180) / 360 * {2**choice.zoom}) as x,
                floor((1 - ln(tan(radians(lat)) + 1 / cos(radians(lat))) / pi()) / 2 * {2**choice.zoom}) as y
            from rows),
        queues as (
            select x, y, number, count(*) as filled, count(distinct device) as devices
            from placed group by all)
        select sum(filled), sum(ceil(filled / {choice.threshold or 10**9})), sum(devices) from queues
    """
    with duckdb.connect() as connection:
        connection.register("rows", table)
        filled, sent, own = connection.execute(query).fetchone()
    assert filled == sums.messages
    assert sent == sums.sent
    assert sums.left_share(SIZES) == pytest.approx(sent / filled)
    assert join_own(Cells(messages, choice.zoom), choice.interval_s).sent == own
    assert 0.1 < sums.own_repeats_share(SIZES) < 0.9
    assert figures.tiles(3, [0.0], [0.0])[0][0] == 4


@pytest.mark.parametrize("threshold", [None, 1, 2, 5])
def test_own_messages_sent_early_equal_those_of_pandas(threshold):
    positions = draw_positions(8)
    cells = Cells(Messages(positions), 13)
    sums = join_own(cells, 600, threshold)
    table = pd.DataFrame(
        {"device": cells.messages.device, "t_us": cells.messages.t_us, "cell": cells.groups(10**9)}
    )
    keys = ["device", "cell", "interval"]
    table["interval"] = table["t_us"] // 600_000_000
    table["part"] = table.groupby(keys).cumcount() // (threshold or len(table))
    parts = table.groupby([*keys, "part"])["t_us"].agg(["size", "sum", "max"]).reset_index()
    end_us = (parts["interval"] + 1) * 600_000_000
    sent_us = end_us.where(parts["size"] != threshold, parts["max"])
    assert sums.sent == sums.told_devices == len(parts)
    assert sums.wait_us == (sent_us * parts["size"] - parts["sum"]).sum()


def measure_when_sent(positions, interval_s, groups, threshold=None):
    """Return the distance of told places from the device's last report when they are sent, row by row.

    ``groups`` is the aggregate of each row in order of time.
    """
    frame = positions.to_pandas().sort_values(["ts", "device"], kind="stable", ignore_index=True)
    frame["s"] = (frame["ts"] - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=1)
    by = frame.groupby(np.asarray(groups))
    lat, lon, filled = by["lat"].transform("mean"), by["lon"].transform("mean"), by["s"].transform("size")
    end_s = (frame["s"] // interval_s + 1) * interval_s
    sent_s = np.where(filled == threshold, by["s"].transform("max"), end_s - 1e-4)
    distances = []
    for row in range(len(frame)):
        is_before = (frame["device"] == frame["device"][row]) & (frame["s"] <= sent_s[row])
        last = frame[is_before].iloc[-1]
        distances.append(1000 * units.distance_km(last["lat"], last["lon"], lat[row], lon[row]))
    return np.array(distances)


@pytest.mark.parametrize("threshold", [None, 2, 5])
def test_distances_when_sent_equal_those_of_pandas(threshold):
    positions = draw_positions(4, 300, 5)
    messages = Messages(positions)
    cells = Cells(messages, 11)
    ways = {
        "join": (cells.groups(40_000, threshold), threshold),
        "own": (own_groups(cells, 40_000), None),
        "different": (different_groups(cells, 40_000), None),
    }
    for name, (groups, size) in ways.items():
        error_m = distance_m(count_bins(cells.sent_bins(groups, 40_000, size))[0])
        in_time = np.empty(len(groups), dtype=np.int64)
        in_time[cells.order] = groups
        distances = np.sort(measure_when_sent(positions, 40_000, in_time, size))
        assert error_m == pytest.approx(distances[math.ceil(0.95 * len(distances)) - 1], rel=0.025), name


def test_joined_last_positions_are_compared_with_those_of_their_devices():
    """Join two devices 2 km apart: the place of both is 1 km away, however they moved before."""
    positions = make_positions([0, 0, 1], [0, 10, 20], [37.9, 37.709, 37.691], [-122.4] * 3)
    bins = last_sent_bins(Messages(positions), 8, 300)
    assert distance_m(count_bins(bins)[0]) == pytest.approx(1000, rel=0.025)
