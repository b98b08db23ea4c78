"""Optimality of `judge`, compared with an exhaustive search over all subsets of the rows."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit.trace.plausible import (
    ELSEWHERE,
    ERROR_COST,
    FLIGHT_COST,
    FLIGHT_S,
    KEPT,
    MAX_FLIGHT_MPS,
    MAX_SPEED_MPS,
    ROW_WORTH,
    TOO_FAST,
    judge,
)
from mudkit.units import EARTH_RADIUS_KM

MINUTE = st.one_of(st.integers(0, 8), st.sampled_from([30, 31, 60]))
KM = st.one_of(st.integers(0, 3), st.sampled_from([4, 8, 12, 16, 20, 300, 301]))
ROW = st.tuples(MINUTE, KM.map(lambda km: 2 * km))
M_A_DEGREE = EARTH_RADIUS_KM * 1000 * np.pi / 180


def find_best(rows, slack):
    """Return the maximum worth of a subset of (seconds, metres to the east), and the worth function.

    ``slack`` decides where two velocities differ by half, but for rounding.
    """
    rows = sorted(set(rows))

    def velocity(a, b):
        return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else float("inf")

    into = {b: velocity(a, b) for a, b in pairwise(rows)}
    out = {a: velocity(a, b) for a, b in pairwise(rows)}

    def cost(a, b):
        v = velocity(a, b)
        if abs(v) <= MAX_SPEED_MPS:
            return 0
        is_continued = any(
            abs(other - v) <= abs(v) / 2 * (1 + slack) for other in (into.get(a, np.inf), out.get(b, np.inf))
        )
        if abs(v) <= MAX_FLIGHT_MPS and is_continued:
            return 0
        return FLIGHT_COST if abs(v) <= MAX_FLIGHT_MPS and b[0] - a[0] >= FLIGHT_S else ERROR_COST

    def worth(subset):
        steps = list(pairwise(subset))
        if any(a[0] == b[0] for a, b in steps):
            return 0
        return ROW_WORTH * len(subset) - sum(cost(a, b) for a, b in steps)

    subsets = [subset for size in range(1, len(rows) + 1) for subset in combinations(rows, size)]
    return max(map(worth, subsets)), worth


def arrays(points):
    t_us = np.array([round(p[0] * 60_000_000) for p in points], np.int64)
    return np.zeros(len(points), int), t_us, np.zeros(len(points)), np.array([p[1] for p in points]) / 111.195


@given(st.lists(ROW, min_size=1, max_size=8))
@example([(0, 40), (2, 32), (3, 24)])
def test_kept_rows_have_maximum_worth(points):
    device, t_us, lat, lon = arrays(points)
    judgement = judge(device, t_us, lat, lon)
    rows = list(zip((t_us / 1e6).tolist(), (lon * M_A_DEGREE).tolist(), strict=True))
    chain = [rows[i] for i in judgement.kept]
    assert chain == sorted(chain)
    results = [find_best(rows, slack) for slack in (-1e-9, 1e-9)]
    assert any(worth(chain) == best_worth for best_worth, worth in results)
    assert sorted(judgement.kept) == np.flatnonzero(judgement.verdict == KEPT).tolist()
    kept_times = {rows[i][0] for i in judgement.kept}
    for i in np.flatnonzero(judgement.verdict != KEPT):
        assert (judgement.verdict[i] == TOO_FAST) == (rows[i][0] not in kept_times)
        if judgement.verdict[i] != TOO_FAST:
            (kept,) = (place for t_s, place in chain if t_s == rows[i][0])
            is_far = abs(rows[i][1] - kept) > 1000
            assert (judgement.verdict[i] >= ELSEWHERE) == is_far


@given(st.lists(ROW, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_judgement_is_independent_of_row_order(points, random):
    def select_kept(points):
        return [points[i] for i in judge(*arrays(points)).kept]

    shuffled = list(points)
    random.shuffle(shuffled)
    assert select_kept(shuffled) == select_kept(points)


@given(st.lists(st.tuples(st.integers(0, 3), ROW), max_size=30))
def test_devices_are_judged_independently(points):
    device = np.array([p[0] for p in points], int)
    t_us = np.array([p[1][0] for p in points], np.int64) * 60_000_000
    lat, lon = np.zeros(len(points)), np.array([p[1][1] for p in points], float) / 111.195
    together = judge(device, t_us, lat, lon).verdict
    for number in set(device.tolist()):
        is_of_device = device == number
        assert (
            judge(device[is_of_device], t_us[is_of_device], lat[is_of_device], lon[is_of_device]).verdict
            == together[is_of_device]
        ).all()


@given(
    st.integers(13, 60),
    st.integers(13, 60),
    st.sampled_from([2, 5, 60]),
    st.integers(1, 900),
    st.integers(1, 4000),
    st.booleans(),
)
@example(home_rows=13, away_rows=13, every_s=60, gap_min=1, far_km=13, returns_home=False)
def test_distant_stay_is_kept_except_rows_beside_its_steps(
    home_rows, away_rows, every_s, gap_min, far_km, returns_home
):
    t = [every_s * i for i in range(home_rows)]
    t += [t[-1] + 60 * gap_min + every_s * i for i in range(away_rows)]
    km = [0.0] * home_rows + [float(far_km)] * away_rows
    if returns_home:
        t += [t[-1] + 60 * gap_min + every_s * i for i in range(home_rows)]
        km += [0.0] * home_rows
    points = [(at_s / 60, x_km) for at_s, x_km in zip(t, km, strict=True)]
    # Rows beside a step may be rejected up to the cost of the step: without three of one row a minute,
    # 13 km take four minutes, and no step is too fast.
    rejected = np.count_nonzero(judge(*arrays(points)).verdict)
    assert rejected * ROW_WORTH <= ERROR_COST * (1 + returns_home)


@given(
    st.floats(71, 330),
    st.sampled_from([1, 5, 30, 60, 300]),
    st.integers(5, 60),
    st.sets(st.integers(1, 58)),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
@pytest.mark.filterwarnings("error")
def test_train_ride_with_gaps_is_kept_and_its_outlier_rejected(
    speed_mps, every_s, rows, missing, outlier_km, random
):
    """Judge a stop, a ride and a stop; one fix is off by more than the ride can explain."""
    before = [(every_s * i, 0.0) for i in range(-6, 1)]
    ride = [(every_s * i, speed_mps * every_s * i / 1000) for i in range(1, rows) if i not in missing]
    after = [(every_s * (rows + i), speed_mps * every_s * (rows - 1) / 1000) for i in range(6)]
    points = [(t / 60, km) for t, km in (*before, *ride, *after)]
    if len(ride) < 3:
        return
    rejected = np.count_nonzero(judge(*arrays(points)).verdict)
    assert rejected <= 4 if missing else rejected == 0  # a step beside a gap may differ from its neighbours
    at = random.randrange(7, 7 + len(ride))
    off_km = outlier_km + 2 * speed_mps * every_s / 1000 * (1 + len(missing))
    with_outlier = [(t, km + off_km * (i == at)) for i, (t, km) in enumerate(points)]
    device, t_us, lat, lon = arrays(with_outlier)
    lat, lon = np.where(np.arange(len(lon)) == at, off_km / 111.195, lat), np.array(arrays(points)[3])
    verdict = judge(device, t_us, lat, lon).verdict
    assert verdict[at] != KEPT
