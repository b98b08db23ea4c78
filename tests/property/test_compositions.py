"""Compositions on stories that Hypothesis draws: what the best order keeps, it keeps of all of them."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from mudkit.experiment import PAIRS, PROMISES
from mudkit.experiment.order_checks import Trace, TraceItem, played

said = st.lists(
    st.tuples(
        st.integers(5, 179).filter(lambda at: at != 90), st.integers(0, 3), st.sampled_from([0, 18, 30])
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each[0],
)
ages = st.lists(st.sampled_from([10, 20, 40]), min_size=1, max_size=2)
KEEPS_ALL = (
    ("writer predicates and a daily limit", "MUD, then Last hop"),
    ("writer predicates and a rate limit", "MUD, then SUBLIM"),
    ("writer predicates and aggregation by time", "MUD, then Radiator"),
    ("writer predicates and aggregation by people", "MUD, then Radiator of k"),
    ("a rate limit and aggregation by time", "Radiator, then SUBLIM"),
)


@pytest.mark.soak(keep=2)
@pytest.mark.parametrize(("composition", "order"), KEEPS_ALL)
@examples(15)
@given(said=said, ages=ages)
def test_what_the_best_order_keeps_it_keeps_of_all_stories(composition, order, said, ages):
    result = PAIRS[composition][order]
    items = [TraceItem(60 * at, feed, least if result.hides else 0) for at, feed, least in sorted(said)]
    came = played(result.make, Trace(tuple(ages), tuple(items)))
    assert [answer for promise in result.promises if (answer := PROMISES[promise](came))] == []
