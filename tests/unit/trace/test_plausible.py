import numpy as np
import pytest

from mudkit.trace.plausible import DUPLICATE, KEPT, OUT_OF_ORDER, TOO_FAST, judge


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
        ([(0, 0), (60, 1), (30, 0.5), (90, 2)], [KEPT, KEPT, OUT_OF_ORDER, KEPT]),
        # a time far in the future costs itself too
        ([(0, 0), (9e6, 1), (60, 1), (120, 2)], [KEPT, OUT_OF_ORDER, KEPT, KEPT]),
        ([(0, 0), (60, 1), (60, 1), (120, 2)], [KEPT, KEPT, DUPLICATE, KEPT]),
        ([(0, 0), (60, 1), (60, 1.1), (120, 2)], [KEPT, KEPT, DUPLICATE, KEPT]),
        # backwards, as the original Cabspotting files are
        ([(180, 3), (120, 2), (60, 1), (0, 0)], [KEPT] * 4),
        ([(5, 5)], [KEPT]),
    ],
)
def test_verdicts(points, verdict):
    assert judge(*rows(*points)).verdict.tolist() == verdict


def test_kept_rows_are_in_order_of_time():
    judgement = judge(*rows((180, 3), (120, 2), (60, 1), (0, 0)))
    assert judgement.kept.tolist() == [3, 2, 1, 0]


def test_devices_do_not_touch_each_other():
    _, t, lat, lon = rows((0, 0), (0, 900), (60, 1), (60, 901))
    assert (judge(np.array([0, 1, 0, 1]), t, lat, lon).verdict == KEPT).all()


def test_no_rows():
    nothing = np.zeros(0)
    assert len(judge(nothing.astype(int), nothing.astype(np.int64), nothing, nothing).kept) == 0


def test_long_contradiction_keeps_the_longer_stretch():
    near = [(60 * i, 0) for i in range(30)]
    far = [(60 * i, 4000) for i in range(30, 100)]
    verdict = judge(*rows(*near, *far)).verdict
    assert (verdict[:30] == TOO_FAST).all()
    assert (verdict[30:] == KEPT).all()
