"""Compositions of systems on drawn stories: the best order keeps its promises on all of them."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.experiment import PAIRS, PROMISES
from mudkit.experiment.order_checks import Trace, TraceItem, play_trace

publications = st.lists(
    st.tuples(
        st.integers(5, 179).filter(lambda at_min: at_min != 90),
        st.integers(0, 3),
        st.sampled_from([0, 18, 30]),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda publication: publication[0],
)
ages = st.lists(st.sampled_from([10, 20, 40]), min_size=1, max_size=2)
BEST_ORDERS = (
    ("writer predicates and a daily limit", "MUD, then Last hop"),
    ("writer predicates and a rate limit", "MUD, then SUBLIM"),
    ("writer predicates and aggregation by time", "MUD, then Radiator"),
    ("writer predicates and aggregation by people", "MUD, then Radiator of k"),
    ("a rate limit and aggregation by time", "Radiator, then SUBLIM"),
)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(("composition", "order"), BEST_ORDERS)
@examples(15)
@given(publications=publications, ages=ages)
def test_best_order_keeps_its_promises_on_all_stories(composition, order, publications, ages):
    result = PAIRS[composition][order]
    items = [
        TraceItem(60 * at_min, feed, min_age if result.hides else 0)
        for at_min, feed, min_age in sorted(publications)
    ]
    outcome = play_trace(result.make, Trace(tuple(ages), tuple(items)))
    assert [answer for promise in result.promises if (answer := PROMISES[promise](outcome))] == []
