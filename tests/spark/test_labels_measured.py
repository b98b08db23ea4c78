"""Row F2 at a small size: both jobs on three traces, compared with DuckDB and on a cluster."""

import pytest

from mudkit.reproduce.lab_spark import F2, measure_labels

pytestmark = pytest.mark.spark


@pytest.mark.soak
def test_f2_measures_all_required_figures():
    messages = []
    result = measure_labels(messages.append, cars=8, days=2, times=2, runs=1)
    assert {required.figure for required in F2.required} <= set(result.figures)
    assert result.figures["share of runs in which both count the same"].low == 1
    assert 0.2 < result.figures["GB of the driver at its peak"].median < 4
    assert all(figure.low > 0 for name, figure in result.figures.items() if name.startswith("s, "))
    assert "label_writes, longer trace, 1 of 1, two workers" in messages
