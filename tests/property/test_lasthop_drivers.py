"""One algorithm, two drivers: the simulator, and machines on the fleet over a link without latency or limit."""

from __future__ import annotations

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mudkit.reproduce.lasthop_fleet import Fleet
from mudkit.systems.lasthop import Forwarding, Spool
from mudkit.systems.lasthop.policies import FOREVER_US
from mudkit.systems.lasthop.scenario import Drawn
from mudkit.systems.lasthop.simulation import play

S = 1_000_000
times = st.lists(st.integers(0, 200).map(lambda at: at * S), max_size=25).map(sorted)
POLICIES = st.one_of(
    st.sampled_from([Forwarding("on-line"), Forwarding("on-demand")]),
    st.builds(
        Forwarding,
        st.sampled_from(["buffer", "rate", "unified"]),
        st.one_of(st.just("learnt"), st.integers(0, 5)),
        st.sampled_from([None, "learnt", 0.0, 15.0, 60.0]),
        st.sampled_from([None, "learnt", 7.0]),
    ),
)


@st.composite
def drawings(draw):
    """Draw what happens; times are whole seconds, so that many coincide."""
    arrivals = draw(times)
    lasts = st.sampled_from([None, None, 1, 10, 30, 100])
    expires = [FOREVER_US if (each := draw(lasts)) is None else at + each * S for at in arrivals]
    ranks = [draw(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])) for _ in arrivals]
    switches = draw(
        st.lists(st.integers(1, 200).map(lambda at: at * S), max_size=12, unique=True).map(sorted)
    )
    whole = [np.array(each, dtype=np.int64) for each in (arrivals, expires, draw(times), switches)]
    return Drawn(
        whole[0], whole[1], np.array(ranks, dtype=np.float64), whole[2], whole[3], draw(st.booleans())
    )


@settings(max_examples=400)
@given(drawings(), POLICIES, st.sampled_from([0, 1, 2, 4, None]), st.sampled_from([0.0, 0.2, 0.5]))
def test_both_drivers_do_the_same(drawn, policy, most, threshold):
    """Forwards and reads in the same order, so the same waste and loss."""
    alone = play(drawn, partial(Spool, threshold, policy), np.inf if most is None else most)
    fleet = Fleet(drawn, policy, most, threshold)
    fleet.run()
    assert fleet.forwarded == list(alone.forwarded_ids)
    assert fleet.read == list(alone.read_ids)
