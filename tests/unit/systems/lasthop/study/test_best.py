"""On-line forwarding without a spool is what the spool does."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudkit.systems.lasthop import Expiration, Forwarding, Scenario
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study import best as module
from mudkit.systems.lasthop.study.best import online
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import beginning, play

TIMES = st.lists(st.integers(0, 12), max_size=15).map(sorted)  # so that much happens at one time


def drawn(arrivals, ranks, reads, switches, starts_up):
    forever = np.full(len(arrivals), FOREVER_US, dtype=np.int64)
    times = (np.array(each, dtype=np.int64) for each in (arrivals, reads, switches))
    arrivals_us, reads_us, switches_us = times
    return Drawn(arrivals_us, forever, np.array(ranks, dtype=float), reads_us, switches_us, starts_up)


@given(
    TIMES,
    st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.9]), min_size=15, max_size=15),
    TIMES,
    TIMES,
    st.booleans(),
    st.sampled_from([0.0, 0.2, 0.7]),
    st.sampled_from([0, 1, 3, math.inf]),
)
def test_it_forwards_and_reads_what_a_spool_does_in_the_same_order(
    arrivals, ranks, reads, switches, starts_up, threshold, most
):
    events = drawn(arrivals, ranks[: len(arrivals)], reads, switches, starts_up)
    spool = play(events, beginning(Forwarding("on-line"), threshold), most)
    assert online(events, threshold, most) == (list(spool.forwarded_ids), list(spool.read_ids))


def test_what_expires_and_what_may_be_too_much_are_left_to_the_spool(monkeypatch):
    assert online(Scenario(days=3, expiration=Expiration(3600.0)).draw(1), 0.0, 8) is None
    events = Scenario(days=3).draw(1)
    for most, is_known in ((len(events.ranks), True), (len(events.ranks) - 1, False)):
        monkeypatch.setattr(module, "MAX_MESSAGES", most)
        assert (online(events, 0.0, 8) is not None) == is_known


@pytest.mark.parametrize("is_on", [True, False])
def test_a_run_leaves_the_search_for_cycles_as_it_was(is_on):
    def begins_badly(forward, retract):
        spool = beginning(Forwarding("on-line"), 0.0)(forward, retract)
        spool.notification = None  # what a spool cannot do
        return spool

    (gc.enable if is_on else gc.disable)()
    try:
        events = drawn([1], [0.5], [2], [], True)
        assert play(events, beginning(Forwarding("on-line"), 0.0), 1).read_ids == (0,)
        assert gc.isenabled() == is_on
        with pytest.raises(TypeError):
            play(events, begins_badly, 1)
        assert gc.isenabled() == is_on
    finally:
        gc.enable()


@pytest.mark.parametrize("starts_up", [True, False])
def test_nothing_comes_of_nothing(starts_up):
    assert online(drawn([], [], [1, 2], [1], starts_up), 0.0, 8) == ([], [])
