"""The curve of trees, the bound and the policies are where their shares say."""

import pandas as pd
import pytest

from mudkit.errors import ParameterError
from mudkit.figures.compare.frontier import frontier

TREES = pd.DataFrame({"sent_share": [0.9, 0.5, 0.7], "stale_share": [0.0, 0.4, 0.1]})
BOUND = pd.DataFrame({"sent_share": [0.8, 0.6], "stale_share": [0.0, 0.1]})
POLICIES = pd.DataFrame({"policy": ["rule", "always"], "sent_share": [0.75, 1.0], "stale_share": [0.05, 0.0]})


def test_lines_are_in_order_and_points_are_named():
    figure = frontier(TREES, BOUND, POLICIES, title="T", most=0.2)
    bound, trees, rule, always = figure.data
    assert list(trees.x) == [90, 70, 50]
    assert list(trees.y) == [0, 10, 40]
    assert list(bound.x) == [80, 60]
    assert (rule.name, rule.x[0], rule.y[0]) == ("rule", 75, 5)
    assert always.marker.symbol != rule.marker.symbol
    assert figure.layout.yaxis.range[1] == 20
    assert "% of reads" in figure.layout.xaxis.title.text


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_column_that_is_not_there_is_named(which):
    tables = [TREES, BOUND, POLICIES]
    tables[which] = tables[which].drop(columns="stale_share")
    with pytest.raises(ParameterError, match="stale_share"):
        frontier(*tables, title="")
