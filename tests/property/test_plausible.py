"""The kept rows are a longest set of rows that can all be true, found here by trying all subsets."""

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mudkit.trace.plausible import DUPLICATE, KEPT, MAX_SPEED_MPS, judge
from mudkit.units import distance_km

ROW = st.tuples(st.integers(0, 8), st.integers(0, 12))  # minutes, and places 2 km apart


def agree(a, b):
    dt_s = (b[0] - a[0]) / 1e6
    return dt_s > 0 and distance_km(a[1], a[2], b[1], b[2]) * 1000 <= MAX_SPEED_MPS * dt_s


def brute(rows):
    for size in range(len(rows), 0, -1):
        if any(all(map(agree, c, c[1:])) for c in combinations(rows, size)):
            return size
    return 0


@given(st.lists(ROW, min_size=1, max_size=9))
def test_as_many_rows_are_kept_as_can_be(points):
    t_us = np.array([p[0] for p in points], np.int64) * 60_000_000
    lat, lon = np.zeros(len(points)), np.array([p[1] for p in points]) * 2 / 111.195
    judgement = judge(np.zeros(len(points), int), t_us, lat, lon)
    rows = list(zip(t_us.tolist(), lat.tolist(), lon.tolist(), strict=True))
    chain = [rows[i] for i in judgement.kept]
    assert all(map(agree, chain, chain[1:]))
    steps = np.sign(np.diff(t_us))
    assert len(chain) == brute(rows[::-1] if (steps < 0).sum() > (steps > 0).sum() else rows)
    assert sorted(judgement.kept) == np.flatnonzero(judgement.verdict == KEPT).tolist()
    kept_times = {rows[i][0] for i in judgement.kept}
    for i in np.flatnonzero(judgement.verdict != KEPT):
        assert (judgement.verdict[i] == DUPLICATE) == (rows[i][0] in kept_times)


@given(st.lists(st.tuples(st.integers(0, 3), ROW), max_size=30), st.randoms(use_true_random=False))
def test_a_device_is_judged_alone(points, random):
    device = np.array([p[0] for p in points], int)
    t_us = np.array([p[1][0] for p in points], np.int64) * 60_000_000
    lat, lon = np.zeros(len(points)), np.array([p[1][1] for p in points], float)
    together = judge(device, t_us, lat, lon).verdict
    for one in set(device.tolist()):
        mine = device == one
        assert (judge(device[mine], t_us[mine], lat[mine], lon[mine]).verdict == together[mine]).all()
