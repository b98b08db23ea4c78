"""Agreement of the simulator and the fleet, over a link without latency or limit."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from lasthop_reference import SpoolEvent, run_reference

from mudkit.reproduce.lasthop_speed import Fleet
from mudkit.systems.lasthop import Forwarding, Spool
from mudkit.systems.lasthop.spool.ranked import FOREVER_US
from mudkit.systems.lasthop.study.scenario import Drawn
from mudkit.systems.lasthop.study.simulation import play

S = 1_000_000
times = st.lists(st.integers(0, 200).map(lambda at: at * S), max_size=25).map(sorted)
POLICIES = st.one_of(
    st.sampled_from(
        [
            Forwarding("on-line"),
            Forwarding("on-demand"),
            Forwarding("on-demand", remembers_reads=True),
            Forwarding("predict"),
        ]
    ),
    st.builds(
        Forwarding,
        st.sampled_from(["buffer", "rate", "unified"]),
        st.one_of(st.just("learnt"), st.integers(0, 5)),
        st.sampled_from([None, "learnt", 0.0, 15.0, 60.0]),
        st.sampled_from([None, "learnt", 7.0]),
        remembers_reads=st.booleans(),
    ),
)


@st.composite
def drawings(draw):
    """Draw events; times are whole seconds, so that many coincide."""
    arrivals = draw(times)
    lifetimes = st.sampled_from([None, None, 1, 10, 30, 100])
    expires = [
        FOREVER_US if (lifetime_s := draw(lifetimes)) is None else at + lifetime_s * S for at in arrivals
    ]
    ranks = [draw(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])) for _ in arrivals]
    switches = draw(
        st.lists(st.integers(1, 200).map(lambda at: at * S), max_size=12, unique=True).map(sorted)
    )
    arrays = [np.array(values, dtype=np.int64) for values in (arrivals, expires, draw(times), switches)]
    return Drawn(
        arrays[0], arrays[1], np.array(ranks, dtype=np.float64), arrays[2], arrays[3], draw(st.booleans())
    )


@examples(200)
@given(drawings(), POLICIES, st.sampled_from([0, 1, 2, 4, None]), st.sampled_from([0.0, 0.2, 0.5]))
def test_simulator_and_fleet_agree(drawn, policy, max_messages, threshold):
    """Compare forwards and reads in order, and so waste and loss."""
    alone = play(drawn, partial(Spool, threshold, policy), np.inf if max_messages is None else max_messages)
    fleet = Fleet(drawn, policy, max_messages, threshold)
    fleet.run()
    assert fleet.forwarded == list(alone.forwarded_ids)
    assert fleet.read == list(alone.read_ids)


@examples(200)
@given(
    drawings(),
    st.lists(
        st.tuples(
            st.integers(0, 200).map(lambda at: at * S), st.integers(0, 24), st.sampled_from([0.0, 0.3, 0.9])
        )
    ).map(sorted),
    POLICIES,
    st.sampled_from([1, 2, None]),
    st.sampled_from([0.2, 0.5]),
)
def test_simulator_and_fleet_agree_on_changes_of_ranks(drawn, reranks, policy, max_messages, threshold):
    """Without a link a device knows of no change: it shows what it has, and loses it afterwards."""
    count, arrivals = len(drawn.arrivals_us), drawn.arrivals_us
    reranks = [
        (at, number, rank) for at, number, rank in reranks if number < count and at >= arrivals[number]
    ]
    columns = zip(*reranks, strict=True) if reranks else ((), (), ())
    changes_us, changed, ranks = (np.array(column) for column in columns)
    drawn = replace(
        drawn, changes_us=changes_us.astype(np.int64), changed=changed.astype(np.int64), changed_ranks=ranks
    )
    alone = play(drawn, partial(Spool, threshold, policy), np.inf if max_messages is None else max_messages)
    fleet = Fleet(drawn, policy, max_messages, threshold, reranks)
    fleet.run()
    assert (fleet.forwarded, fleet.read) == (list(alone.forwarded_ids), list(alone.read_ids))


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
def test_rank_changes_equal_the_reference(drawn, reranks, policy, max_messages, threshold):
    """Keep the link up: without one, a device does not receive rank changes."""
    drawn = replace(drawn, switches_us=drawn.switches_us[:0], starts_up=True)
    expires = [
        math.inf if expires_us == FOREVER_US else expires_us for expires_us in drawn.expires_us.tolist()
    ]
    arrivals = list(zip(drawn.arrivals_us.tolist(), drawn.ranks.tolist(), expires, strict=True))
    story = [
        SpoolEvent(at, "arrival", number, rank, until) for number, (at, rank, until) in enumerate(arrivals)
    ]
    reranks = sorted(
        rerank for rerank in reranks if rerank[1] < len(arrivals) and rerank[0] >= arrivals[rerank[1]][0]
    )
    story += [SpoolEvent(at, "rank", number, rank, expires[number]) for at, number, rank in reranks]
    story += [SpoolEvent(at, "read") for at in drawn.reads_us.tolist()]
    story.sort(key=lambda event: (event.at_us, ["arrival", "rank", "read"].index(event.what)))
    forwarded, read, _ = run_reference(
        story, policy, np.inf if max_messages is None else max_messages, threshold
    )
    fleet = Fleet(drawn, policy, max_messages, threshold, reranks)
    fleet.run()
    assert (fleet.forwarded, fleet.read) == (forwarded, read)
