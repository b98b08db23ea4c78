"""Row F2 at a small size: both jobs on three traces, compared with DuckDB and on a cluster."""

import pytest

from mudkit.reproduce.lab_spark import F2, measure_labels

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_f2_measures_all_required_quantities():
    messages = []
    result = measure_labels(messages.append, cars=8, days=2, times=2, runs=1)
    assert {required.quantity for required in F2.required} <= set(result.quantities)
    assert result.quantities["share of runs in which both count the same"].low == 1
    assert 0.2 < result.quantities["GB of the driver at its peak"].median < 4
    assert all(quantity.low > 0 for name, quantity in result.quantities.items() if name.startswith("s, "))
    assert "label_writes, longer trace, 1 of 1, two workers" in messages
