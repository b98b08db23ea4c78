import numpy as np
import pytest

from mudkit.learning import COSTS, WRITE_COSTS, CostMatrix, delay_costs
from mudkit.learning.costs import CLASSES, read_costs, write_costs


def test_presets_and_costs_of_ones_own():
    assert read_costs("freshness").tolist() == [[0, 1], [COSTS["freshness"].stale, 0]]
    assert read_costs(CostMatrix(stale=3, unnecessary=2)).tolist() == [[0, 2], [3, 0]]
    assert read_costs([[0, 1], [2, 0.5]]).tolist() == [[0, 1], [2, 0.5]]
    own = np.ones((14, 14))
    assert write_costs(own).tolist() == own.tolist()
    assert write_costs("latency").tolist() == WRITE_COSTS["latency"].tolist()


def test_too_long_is_dear_and_too_short_the_dearer_the_shorter():
    costs = delay_costs(5.0)
    assert costs.shape == (len(CLASSES),) * 2 == (14, 14)
    assert (np.diag(costs) == 0).all()
    assert (costs[np.triu_indices(14, 1)] == 5.0).all()
    for row in costs:  # what may wait longer than it does
        below = row[row < 5.0]
        assert (np.diff(below) < 0).all()
    assert costs[13, 0] == pytest.approx(1.0)  # a message of its own for what nobody reads
