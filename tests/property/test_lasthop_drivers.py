"""One algorithm, two drivers: the simulator, and machines on the fleet over a link without latency or limit."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lasthop_reference import Happening, played

from mudkit.reproduce.lasthop_speed import Fleet
from mudkit.systems.lasthop import Forwarding, Spool
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import play

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


@examples(200)
@given(drawings(), POLICIES, st.sampled_from([0, 1, 2, 4, None]), st.sampled_from([0.0, 0.2, 0.5]))
def test_both_drivers_do_the_same(drawn, policy, most, threshold):
    """Forwards and reads in the same order, so the same waste and loss."""
    alone = play(drawn, partial(Spool, threshold, policy), np.inf if most is None else most)
    fleet = Fleet(drawn, policy, most, threshold)
    fleet.run()
    assert fleet.forwarded == list(alone.forwarded_ids)
    assert fleet.read == list(alone.read_ids)


@examples(100)
@given(
    drawings(),
    st.lists(
        st.tuples(
            st.integers(0, 200).map(lambda at: at * S), st.integers(0, 24), st.sampled_from([0.0, 0.3, 0.9])
        )
    ),
    st.builds(Forwarding, st.sampled_from(["on-line", "on-demand", "buffer"]), st.integers(0, 5)),
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_ranks_change_as_is_said_simply(drawn, reranks, policy, most, threshold):
    """While there is a link: without one, a device does not hear of ranks."""
    drawn = replace(drawn, switches_us=drawn.switches_us[:0], starts_up=True)
    expires = [math.inf if each == FOREVER_US else each for each in drawn.expires_us.tolist()]
    arrivals = list(zip(drawn.arrivals_us.tolist(), drawn.ranks.tolist(), expires, strict=True))
    story = [Happening(at, "arrival", each, rank, until) for each, (at, rank, until) in enumerate(arrivals)]
    reranks = sorted(each for each in reranks if each[1] < len(arrivals) and each[0] >= arrivals[each[1]][0])
    story += [Happening(at, "rank", each, rank, expires[each]) for at, each, rank in reranks]
    story += [Happening(at, "read") for at in drawn.reads_us.tolist()]
    story.sort(key=lambda each: (each.at_us, ["arrival", "rank", "read"].index(each.what)))
    forwarded, read, _ = played(story, policy, np.inf if most is None else most, threshold)
    fleet = Fleet(drawn, policy, most, threshold, reranks)
    fleet.run()
    assert (fleet.forwarded, fleet.read) == (forwarded, read)
