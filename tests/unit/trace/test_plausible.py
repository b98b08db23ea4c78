import numpy as np
import pytest

from mudkit.trace.plausible import BESIDE, DUPLICATE, KEPT, TOO_FAST, has_no_fix, judge, reason_of


def build_rows(*points, origin=(0.0, 0.0)):
    """Build rows of one device from (seconds, kilometres east of an origin)."""
    t, km = np.array(points, dtype=float).T
    lat, lon = origin
    lon = (lon + km / (111.195 * np.cos(np.radians(lat))) + 180) % 360 - 180
    return np.zeros(len(t), int), (t * 1e6).astype(np.int64), np.full(len(t), lat), lon


@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        ([(0, 0), (60, 1), (120, 2)], [KEPT] * 3),
        ([(0, 0), (60, 100), (120, 2)], [KEPT, TOO_FAST, KEPT]),
        # a wild first fix rejects only itself
        ([(0, 500), (60, 1), (120, 2), (180, 3)], [TOO_FAST, KEPT, KEPT, KEPT]),
        ([(0, 0), (60, 1), (120, 900)], [KEPT, KEPT, TOO_FAST]),
        # a late row is sorted into its place
        ([(0, 0), (60, 1), (30, 0.5), (90, 2)], [KEPT] * 4),
        ([(0, 0), (9e6, 1), (60, 1), (120, 2)], [KEPT] * 4),
        ([(0, 0), (60, 1), (60, 1), (120, 2)], [KEPT, KEPT, DUPLICATE, KEPT]),
        ([(0, 0), (60, 1), (60, 1.1), (120, 2)], [KEPT, KEPT, BESIDE, KEPT]),
        # in reverse order, as in the original Cabspotting files
        ([(180, 3), (120, 2), (60, 1), (0, 0)], [KEPT] * 4),
        ([(5, 5)], [KEPT]),
    ],
)
def test_verdicts(points, verdict):
    assert judge(*build_rows(*points)).verdict.tolist() == verdict


def test_judging_no_rows():
    nothing = np.zeros(0)
    assert len(judge(nothing.astype(int), nothing.astype(np.int64), nothing, nothing).kept) == 0


def test_consecutive_wild_fixes_are_rejected():
    home = [(5 * i, 0) for i in range(100)]
    for length in range(1, 6):
        wild = [(t, 2 if 50 <= i < 50 + length else 0) for i, (t, _) in enumerate(home)]
        verdict = judge(*build_rows(*wild)).verdict
        assert np.flatnonzero(verdict == TOO_FAST).tolist() == list(range(50, 50 + length))


@pytest.mark.parametrize("origin", [(0.0, 0.0), (60.0, 0.0), (0.0, 176.0)])  # the last: over the date line
def test_flight_between_hourly_fixes_is_kept(origin):
    hours = [(3600 * i, 0) for i in range(5)] + [(3600 * i, 900) for i in range(5, 7)]
    back = [(3600 * i, 0) for i in range(7, 12)]
    assert (judge(*build_rows(*hours, *back, origin=origin)).verdict == KEPT).all()
    assert (judge(*build_rows(*hours[:-1], origin=origin)).verdict == KEPT).all()  # its last fix
    short_stay = judge(*build_rows(*hours[:-1], *back, origin=origin))
    assert short_stay.verdict.tolist() == [KEPT] * 5 + [TOO_FAST] + [KEPT] * 5


def test_flight_across_the_date_line_is_kept():
    """Judge the fixes of an airliner, then those with a longitude of the wrong sign."""
    device, t_us, lat, _ = build_rows(*[(10 * i, 0) for i in range(200)])
    lon = (178 + np.arange(200) * 2.5 / 111.195 + 180) % 360 - 180
    assert (judge(device, t_us, lat, lon).verdict == KEPT).all()
    lon[50] *= -1
    assert np.flatnonzero(judge(device, t_us, lat, lon).verdict).tolist() == [50]


@pytest.mark.soak
def test_long_trace_of_two_phones_is_judged_in_time():
    """Bound the work when each row contradicts the one before it."""
    n = 4000
    verdict = judge(*build_rows(*[(30 * i, 500 * (i % 2)) for i in range(n)])).verdict
    assert np.count_nonzero(verdict == KEPT) == n // 2


def test_duplicate_with_the_lowest_other_values_is_kept():
    device, t_us, lat, lon = build_rows((0, 0), (60, 1), (60, 1), (120, 2))
    for speeds, verdict in (
        ([1, 2, 3, 4], [KEPT, KEPT, DUPLICATE, KEPT]),
        ([1, 3, 2, 4], [KEPT, DUPLICATE, KEPT, KEPT]),
    ):
        assert judge(device, t_us, lat, lon, [np.array(speeds, float)]).verdict.tolist() == verdict


@pytest.mark.parametrize(
    ("km", "reason"),
    [
        (0, "duplicate"),
        (0.5, "same moment, up to 1 km apart"),
        (2, "same moment, over 1 km apart"),
        (80, "same moment, over 10 km apart"),
        (5000, "same moment, over 1,000 km apart"),
        (15_000, "same moment, over 10,000 km apart"),
    ],
)
def test_row_elsewhere_at_the_same_moment_is_named_by_its_distance(km, reason):
    device, t_us, lat, lon = build_rows((0, 0), (60, 1), (60, 1 + km), (120, 2))
    verdict = judge(device, t_us, lat, lon).verdict
    assert verdict[[0, 1, 3]].tolist() == [KEPT] * 3
    assert reason_of(verdict[2]) == reason


DRIVE = [(46.9 + 0.002 * i, 8.05 + 0.001 * i) for i in range(20)]


@pytest.mark.parametrize(
    ("others", "place", "rows", "is_lost"),
    [
        (DRIVE, (0.0, 0.0), 30, True),
        (DRIVE, (-1.0, -1.0), 30, True),
        (DRIVE, (90.0, -180.0), 1, True),
        (DRIVE, (47.0, 8.0), 30, False),  # near other places
        (DRIVE, (46.0, 9.0), 30, False),
        (DRIVE, (0.5, 0.0), 30, False),
        ([], (0.0, 0.0), 30, True),
        ([], (47.0, 8.0), 30, False),  # a file of whole degrees
        ([(1.0, 2.0), (2.0, 3.0)], (47.0, 8.0), 30, False),
        ([(0.05, -0.05)], (0.0, 0.0), 3, False),  # a ship
        ([(0.05, 179.9)], (0.0, -180.0), 3, False),
        ([(89.5, 100.0)], (90.0, 0.0), 3, False),
    ],
)
def test_constants_of_receivers_without_a_fix_are_no_places(others, place, rows, is_lost):
    """The other device, which has places around 0, 0, changes nothing."""
    places = np.array([*others, *[place] * rows, (0.01, 0.01), (46.99, 7.99)])
    device = np.array([7] * (len(places) - 2) + [3, 3])
    lost = has_no_fix(device, *places.T)
    assert lost.tolist() == [False] * len(others) + [is_lost] * rows + [False, False]


def test_devices_are_judged_each_by_itself():
    """A device is at one place at a time; what others do is no reason (the table of the module)."""
    draw = np.random.default_rng(7)
    n = 3000
    device = np.sort(draw.integers(0, 30, n))
    t_us = np.arange(n) * 60_000_000
    lat, lon = (np.cumsum(draw.normal(0, 1e-4, n)) for _ in range(2))
    is_wild = (draw.random(n) < 0.01) & (device % 3 == 0)
    lat[is_wild] += 1.0
    verdict = judge(device, t_us, lat, lon).verdict
    for number in range(30):
        of = device == number
        alone = judge(device[of], t_us[of], lat[of], lon[of])
        np.testing.assert_array_equal(verdict[of], alone.verdict)
        assert (verdict[of] == TOO_FAST).any() == (is_wild[of]).any()
