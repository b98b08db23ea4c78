import numpy as np
import pytest

from mudkit.learning import COSTS, WRITE_COSTS, CostMatrix, delay_costs
from mudkit.learning.costs import CLASSES, read_costs, write_costs


def test_cost_presets_and_custom_matrices_are_accepted():
    assert read_costs("freshness").tolist() == [[0, 1], [COSTS["freshness"].stale, 0]]
    assert read_costs(CostMatrix(stale=3, unnecessary=2)).tolist() == [[0, 2], [3, 0]]
    assert read_costs([[0, 1], [2, 0.5]]).tolist() == [[0, 1], [2, 0.5]]
    custom = np.ones((14, 14))
    assert write_costs(custom).tolist() == custom.tolist()
    assert write_costs("latency").tolist() == WRITE_COSTS["latency"].tolist()


def test_delay_costs_rise_for_shorter_and_are_constant_for_longer_delays():
    costs = delay_costs(5.0)
    assert costs.shape == (len(CLASSES),) * 2 == (14, 14)
    assert (np.diag(costs) == 0).all()
    assert (costs[np.triu_indices(14, 1)] == 5.0).all()
    for row in costs:  # delays shorter than the write allows
        below = row[row < 5.0]
        assert (np.diff(below) < 0).all()
    assert costs[13, 0] == pytest.approx(1.0)  # a separate message for a write that is never read
    assert delay_costs(5.0, 0.5)[13, 0] == pytest.approx(0.5)
    assert (delay_costs(0.0, 0.0) == 0).all(), "each cost is 0 or more"
