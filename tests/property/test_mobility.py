"""Invariants of every mobility model, for any parameters, seed and moments."""

import datetime as dt

import numpy as np
import pyarrow as pa
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.sources.city import CommuterTown
from mudkit.sources.commute import Commute
from mudkit.sources.grid import ManhattanGrid
from mudkit.sources.replay import Replay
from mudkit.sources.trips import SPEED_CUT, day_start_s
from mudkit.sources.waypoint import RandomWaypoint
from mudkit.units import KM_PER_DEGREE, distance_km

US = 1_000_000
HOUR_US = 3600 * US
NAMES = [f"phone-{i}" for i in range(12)]
# A flat map is wrong by 1.4 % at worst, 50 km from a centre at latitude 60.
FLAT = 1.02

speeds = st.lists(st.floats(0.1, 70), min_size=2, max_size=2).map(sorted)
centres = st.tuples(st.floats(-60, 60), st.floats(-180, 180))
waypoints = st.builds(
    lambda at, edge_km, speed, pause_s: RandomWaypoint(*at, edge_km, *speed, pause_s),
    centres,
    st.floats(0.5, 100),
    speeds,
    st.one_of(st.just(0.0), st.floats(0, 7200)),
)
grids = st.builds(
    lambda at, block_m, blocks, speed: ManhattanGrid(*at, blocks * block_m / 1000, block_m, *speed),
    centres,
    st.floats(50, 3000),
    st.integers(1, 30),
    speeds,
)
commutes = st.builds(
    lambda at, offset_h: Commute(CommuterTown(lat=at[0], lon=at[1], utc_offset_h=offset_h)),
    centres,
    st.sampled_from([-12.0, -6.0, 0.0, 5.75, 14.0]),
)
models = st.one_of(waypoints, grids, commutes)
seeds = st.integers(-(2**40), 2**40)
starts = st.integers(0, 2**51)
moments = st.lists(st.integers(0, 8 * HOUR_US), min_size=1, max_size=6).map(sorted)


def max_speed_mps(model):
    if isinstance(model, Commute):
        town = model.town
        return town.expressway_mps * (1 + SPEED_CUT * town.speed_spread)
    return model.speed_high_mps


def centre_and_half_km(model):
    if isinstance(model, Commute):
        return model.town.lat, model.town.lon, model.town.edge_km
    return model.lat, model.lon, model.edge_km / 2


def project_km(model, places):
    lat, lon, _ = centre_and_half_km(model)
    around = (places.lon - lon + 180) % 360 - 180
    return around * KM_PER_DEGREE * np.cos(np.radians(lat)), (places.lat - lat) * KM_PER_DEGREE


def are_equal(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


@examples(40)
@given(models, seeds, starts, moments, st.permutations(range(len(NAMES))), st.integers(0, len(NAMES)))
def test_movement_is_independent_of_the_fleet(model, seed, start_us, times, order, count):
    order = order[:count]
    whole = model.course(seed, NAMES, start_us)
    part = model.course(seed, [NAMES[i] for i in order], start_us)
    for t_us in times:
        expected, result = whole.at(t_us), part.at(t_us)
        assert are_equal([column[order] for column in expected], result)


@examples(40)
@given(models, seeds, starts, moments, moments)
def test_intermediate_queries_do_not_change_positions(model, seed, start_us, times, between):
    dense_course = model.course(seed, NAMES, start_us)
    dense = {t_us: dense_course.at(t_us) for t_us in sorted(times + between)}
    sparse_course = model.course(seed, NAMES, start_us)
    for t_us in times:
        assert are_equal(sparse_course.at(t_us), dense[t_us])
    assert are_equal(model.course(seed, NAMES, start_us).at(times[-1]), dense[times[-1]])


@examples(40)
@given(models, seeds, starts, st.integers(0, 20 * HOUR_US), st.integers(1, 120 * US))
def test_devices_respect_speed_limit_and_area(model, seed, start_us, t_us, step_us):
    course, limit_mps = model.course(seed, NAMES, start_us), max_speed_mps(model)
    before = course.at(t_us)
    for k in range(1, 6):
        after = course.at(t_us + k * step_us)
        way_m = 1000 * distance_km(before.lat, before.lon, after.lat, after.lon)
        # A millimetre for the rounding of degrees.
        assert (way_m <= FLAT * limit_mps * step_us / US + 1e-3).all()
        assert (after.speed_mps >= 0).all()
        assert (after.speed_mps <= limit_mps * (1 + 1e-9)).all()
        for km in project_km(model, after):
            assert (np.abs(km) <= centre_and_half_km(model)[2] + 1e-6).all()
        assert (after.lon >= -180).all()
        assert (after.lon < 180).all()
        before = after


@examples(40)
@given(grids, seeds, moments)
def test_grid_devices_stay_on_streets(model, seed, times):
    course = model.course(seed, NAMES, 0)
    for t_us in times:
        blocks = np.stack(project_km(model, course.at(t_us))) * 1000 / model.block_m + model.blocks / 2
        assert (np.abs(blocks - np.rint(blocks)).min(axis=0) < 1e-5).all()


@examples(30)
@given(commutes, seeds, st.integers(0, 20_000), st.integers(-20 * HOUR_US, 0))
def test_commuters_are_at_home_at_four(model, seed, day, ahead_us):
    four_us = day_start_s(model.town, day) * US
    homes = model.course(seed, NAMES, four_us).at(0)
    later = model.course(seed, NAMES, four_us + ahead_us)
    later.at(0)
    assert are_equal(later.at(-ahead_us), homes)
    assert (homes.speed_mps == 0).all()


reports = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 5000),
        st.floats(-80, 80),
        st.floats(-180, 179.9),
    ),
    min_size=2,
    max_size=30,
    unique_by=lambda row: row[:2],
)


def build_table(rows):
    first = dt.datetime(2010, 3, 1, tzinfo=dt.UTC)
    columns = list(zip(*rows, strict=True))
    return pa.table(
        {
            "device": [f"car-{device}" for device in columns[0]],
            "ts": pa.array(
                [first + dt.timedelta(seconds=s) for s in columns[1]], pa.timestamp("us", tz="UTC")
            ),
            "lat": columns[2],
            "lon": columns[3],
        }
    )


def split_tracks(rows):
    """Return the sorted reports of each device that has at least two."""
    devices = sorted({row[0] for row in rows})
    result = [sorted(row[1:] for row in rows if row[0] == device) for device in devices]
    return [track for track in result if len(track) > 1]


def interpolate_place(track, s, gap_s):
    """Return the place of one device at one moment, as the docstring of `Replay` defines it."""
    if s < track[0][0]:
        return track[0][1:]
    i = max(k for k, row in enumerate(track) if row[0] <= s)
    t0, lat0, lon0 = track[i]
    if i + 1 == len(track) or track[i + 1][0] - t0 > gap_s:
        return lat0, lon0
    t1, lat1, lon1 = track[i + 1]
    part = (s - t0) / (t1 - t0)
    d_lon = (lon1 - lon0 + 540) % 360 - 180
    return lat0 + part * (lat1 - lat0), (lon0 + part * d_lon + 180) % 360 - 180


@examples(150)
@given(reports, st.floats(0, 2000), st.lists(st.floats(0, 1), max_size=8), st.floats(0, 1))
def test_replay_passes_its_reports_and_interpolates_linearly(rows, gap_s, parts, start_share):
    expected = split_tracks(rows)
    if not expected:
        return
    first_s, last_s = min(row[1] for row in rows), max(row[1] for row in rows)
    start_s = first_s + int(start_share * (last_s - first_s))
    start = dt.datetime(2010, 3, 1) + dt.timedelta(seconds=start_s)
    replay = Replay(build_table(rows), start, gap_s=gap_s)
    assert replay.devices == len(expected)
    course = replay.course(0, [f"d{i}" for i in range(len(expected))], 12345)
    assert course.until_us == (last_s - start_s) * US
    moments_s = [row[1] for row in rows] + [first_s + part * (last_s - first_s) for part in parts]
    for s in sorted(s for s in moments_s if s >= start_s):
        t_us = min(round((s - start_s) * US), course.until_us)
        result = course.at(t_us)
        for i, track in enumerate(expected):
            lat, lon = interpolate_place(track, start_s + t_us / US, gap_s)
            assert abs(result.lat[i] - lat) < 1e-6
            assert abs((result.lon[i] - lon + 180) % 360 - 180) < 1e-6
            for report in track:
                if report[0] * US == start_s * US + t_us:
                    assert (result.lat[i], result.lon[i]) == report[1:]
