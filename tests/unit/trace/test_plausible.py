import numpy as np
import pytest

from mudkit.trace.plausible import DUPLICATE, KEPT, TOO_FAST, judge


def rows(*points):
    """Rows of one device: (seconds, kilometres east of the origin on the equator)."""
    t, km = np.array(points, dtype=float).T
    return np.zeros(len(t), int), (t * 1e6).astype(np.int64), np.zeros(len(t)), km / 111.195


@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        ([(0, 0), (60, 1), (120, 2)], [KEPT] * 3),
        ([(0, 0), (60, 100), (120, 2)], [KEPT, TOO_FAST, KEPT]),
        # a wild first fix costs itself, not the rest
        ([(0, 500), (60, 1), (120, 2), (180, 3)], [TOO_FAST, KEPT, KEPT, KEPT]),
        ([(0, 0), (60, 1), (120, 900)], [KEPT, KEPT, TOO_FAST]),
        # what comes late is in its place all the same
        ([(0, 0), (60, 1), (30, 0.5), (90, 2)], [KEPT] * 4),
        ([(0, 0), (9e6, 1), (60, 1), (120, 2)], [KEPT] * 4),
        ([(0, 0), (60, 1), (60, 1), (120, 2)], [KEPT, KEPT, DUPLICATE, KEPT]),
        ([(0, 0), (60, 1), (60, 1.1), (120, 2)], [KEPT, KEPT, DUPLICATE, KEPT]),
        # backwards, as the original Cabspotting files are
        ([(180, 3), (120, 2), (60, 1), (0, 0)], [KEPT] * 4),
        ([(5, 5)], [KEPT]),
    ],
)
def test_verdicts(points, verdict):
    assert judge(*rows(*points)).verdict.tolist() == verdict


def test_no_rows():
    nothing = np.zeros(0)
    assert len(judge(nothing.astype(int), nothing.astype(np.int64), nothing, nothing).kept) == 0


def test_some_wild_fixes_in_a_row_are_no_stay():
    home = [(5 * i, 0) for i in range(100)]
    for length in range(1, 6):
        wild = [(t, 2 if 50 <= i < 50 + length else 0) for i, (t, _) in enumerate(home)]
        verdict = judge(*rows(*wild)).verdict
        assert np.flatnonzero(verdict == TOO_FAST).tolist() == list(range(50, 50 + length))


def test_a_flight_between_two_hourly_fixes():
    hours = [(3600 * i, 0) for i in range(5)] + [(3600 * i, 900) for i in range(5, 7)]
    back = [(3600 * i, 0) for i in range(7, 12)]
    assert (judge(*rows(*hours, *back)).verdict == KEPT).all()
    assert (judge(*rows(*hours[:-1])).verdict == KEPT).all()  # its last fix
    assert judge(*rows(*hours[:-1], *back)).verdict.tolist() == [KEPT] * 5 + [TOO_FAST] + [KEPT] * 5


def test_across_the_date_line():
    """An airliner, with the wild fix that a longitude's sign makes."""
    device, t_us, lat, _ = rows(*[(10 * i, 0) for i in range(200)])
    lon = (178 + np.arange(200) * 2.5 / 111.195 + 180) % 360 - 180
    assert (judge(device, t_us, lat, lon).verdict == KEPT).all()
    lon[50] *= -1
    assert np.flatnonzero(judge(device, t_us, lat, lon).verdict).tolist() == [50]


@pytest.mark.soak
def test_a_long_trace_of_two_phones_is_judged_in_time():
    """Each row contradicts the one before it: the work stays bounded."""
    n = 4000
    verdict = judge(*rows(*[(30 * i, 500 * (i % 2)) for i in range(n)])).verdict
    assert np.count_nonzero(verdict == KEPT) == n // 2


def test_of_rows_that_differ_in_what_else_they_say_the_lowest_is_kept():
    device, t_us, lat, lon = rows((0, 0), (60, 1), (60, 1), (120, 2))
    for speeds, verdict in (
        ([1, 2, 3, 4], [KEPT, KEPT, DUPLICATE, KEPT]),
        ([1, 3, 2, 4], [KEPT, DUPLICATE, KEPT, KEPT]),
    ):
        assert judge(device, t_us, lat, lon, [np.array(speeds, float)]).verdict.tolist() == verdict
