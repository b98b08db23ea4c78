"""The kept rows are worth as much together as any can be, found here by trying all subsets."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudkit.trace.plausible import (
    DUPLICATE,
    ERROR_COST,
    FLIGHT_COST,
    FLIGHT_S,
    KEPT,
    MAX_FLIGHT_MPS,
    MAX_SPEED_MPS,
    ROW_WORTH,
    judge,
)
from mudkit.units import EARTH_RADIUS_KM

MINUTE = st.one_of(st.integers(0, 8), st.sampled_from([30, 31, 60]))
KM = st.one_of(st.integers(0, 3), st.sampled_from([4, 8, 12, 16, 20, 300, 301]))
ROW = st.tuples(MINUTE, KM.map(lambda km: 2 * km))
M_A_DEGREE = EARTH_RADIUS_KM * 1000 * np.pi / 180


def best(rows):
    """The most that a subset of (seconds, metres to the east) is worth."""
    rows = sorted(set(rows))

    def velocity(a, b):
        return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else float("inf")

    into = {b: velocity(a, b) for a, b in pairwise(rows)}
    out = {a: velocity(a, b) for a, b in pairwise(rows)}

    def cost(a, b):
        v = velocity(a, b)
        if abs(v) <= MAX_SPEED_MPS:
            return 0
        goes_on = any(abs(other - v) <= abs(v) / 2 for other in (into.get(a, np.inf), out.get(b, np.inf)))
        if abs(v) <= MAX_FLIGHT_MPS and goes_on:
            return 0
        return FLIGHT_COST if abs(v) <= MAX_FLIGHT_MPS and b[0] - a[0] >= FLIGHT_S else ERROR_COST

    def worth(subset):
        steps = list(pairwise(subset))
        if any(a[0] == b[0] for a, b in steps):
            return 0
        return ROW_WORTH * len(subset) - sum(cost(a, b) for a, b in steps)

    subsets = [each for size in range(1, len(rows) + 1) for each in combinations(rows, size)]
    return max(map(worth, subsets)), worth


def arrays(points):
    t_us = np.array([round(p[0] * 60_000_000) for p in points], np.int64)
    return np.zeros(len(points), int), t_us, np.zeros(len(points)), np.array([p[1] for p in points]) / 111.195


@given(st.lists(ROW, min_size=1, max_size=8))
def test_the_kept_rows_are_worth_as_much_as_any_can_be(points):
    device, t_us, lat, lon = arrays(points)
    judgement = judge(device, t_us, lat, lon)
    rows = list(zip((t_us / 1e6).tolist(), (lon * M_A_DEGREE).tolist(), strict=True))
    chain = [rows[i] for i in judgement.kept]
    most, worth = best(rows)
    assert chain == sorted(chain)
    assert worth(chain) == most
    assert sorted(judgement.kept) == np.flatnonzero(judgement.verdict == KEPT).tolist()
    kept_times = {rows[i][0] for i in judgement.kept}
    for i in np.flatnonzero(judgement.verdict != KEPT):
        assert (judgement.verdict[i] == DUPLICATE) == (rows[i][0] in kept_times)


@given(st.lists(ROW, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(points, random):
    def kept(points):
        return [points[i] for i in judge(*arrays(points)).kept]

    shuffled = list(points)
    random.shuffle(shuffled)
    assert kept(shuffled) == kept(points)


@given(st.lists(st.tuples(st.integers(0, 3), ROW), max_size=30))
def test_a_device_is_judged_alone(points):
    device = np.array([p[0] for p in points], int)
    t_us = np.array([p[1][0] for p in points], np.int64) * 60_000_000
    lat, lon = np.zeros(len(points)), np.array([p[1][1] for p in points], float) / 111.195
    together = judge(device, t_us, lat, lon).verdict
    for one in set(device.tolist()):
        mine = device == one
        assert (judge(device[mine], t_us[mine], lat[mine], lon[mine]).verdict == together[mine]).all()


@given(
    st.integers(13, 60),
    st.integers(13, 60),
    st.sampled_from([2, 5, 60]),
    st.integers(1, 900),
    st.integers(1, 4000),
    st.booleans(),
)
@example(here=13, there=13, every_s=60, gap_min=1, far_km=13, comes_back=False)
def test_a_stay_elsewhere_is_kept_however_far_and_sudden(here, there, every_s, gap_min, far_km, comes_back):
    t = [every_s * i for i in range(here)]
    t += [t[-1] + 60 * gap_min + every_s * i for i in range(there)]
    km = [0.0] * here + [float(far_km)] * there
    if comes_back:
        t += [t[-1] + 60 * gap_min + every_s * i for i in range(here)]
        km += [0.0] * here
    points = [(each / 60, at) for each, at in zip(t, km, strict=True)]
    # Rows beside a step may be set aside for what the step costs at most: without three of a row a minute,
    # 13 km take four minutes, and no step is too fast.
    aside = np.count_nonzero(judge(*arrays(points)).verdict)
    assert aside * ROW_WORTH <= ERROR_COST * (1 + comes_back)


@given(
    st.floats(71, 330),
    st.sampled_from([1, 5, 30, 60, 300]),
    st.integers(5, 60),
    st.sets(st.integers(1, 58)),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
@pytest.mark.filterwarnings("error")
def test_a_train_is_kept_with_rows_missing_and_its_wild_fixes_are_not(
    speed_mps, every_s, rows, missing, wild_km, random
):
    """It accelerates for a while, rides, and stands; one fix of it is wild by more than the ride can explain."""
    stands = [(every_s * i, 0.0) for i in range(-6, 1)]
    ride = [(every_s * i, speed_mps * every_s * i / 1000) for i in range(1, rows) if i not in missing]
    stays = [(every_s * (rows + i), speed_mps * every_s * (rows - 1) / 1000) for i in range(6)]
    points = [(t / 60, km) for t, km in (*stands, *ride, *stays)]
    if len(ride) < 3:
        return
    aside = np.count_nonzero(judge(*arrays(points)).verdict)
    assert aside <= 4 if missing else aside == 0  # a step may be unlike its neighbours where rows are missing
    at = random.randrange(7, 7 + len(ride))
    off_km = wild_km + 2 * speed_mps * every_s / 1000 * (1 + len(missing))
    wild = [(t, km + off_km * (i == at)) for i, (t, km) in enumerate(points)]
    device, t_us, lat, lon = arrays(wild)
    lat, lon = np.where(np.arange(len(lon)) == at, off_km / 111.195, lat), np.array(arrays(points)[3])
    verdict = judge(device, t_us, lat, lon).verdict
    assert verdict[at] != KEPT
